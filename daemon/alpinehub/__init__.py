"""alpinehub: a guest-request hub for hotels, the application that proves cordata."""
