"""AlpineBits HotelData, server side: hotel software fetches guest requests, acknowledges them."""
