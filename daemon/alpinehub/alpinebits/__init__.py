"""AlpineBits HotelData, server side: guest requests to hotel software, hotel data from it."""
