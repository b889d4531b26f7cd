"""The handlers of the AlpineBits actions; all have the signature `(Call) -> ResponseBody`."""
