"""HTTP/1.1 on inherited sockets for any ASGI application."""
