"""The actions that hotel software may ask for: one module each, all with one signature."""
