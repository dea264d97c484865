"""Messages: sending, storing, searching, and how far each was delivered."""
