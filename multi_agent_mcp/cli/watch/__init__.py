"""`watch`: a live snapshot of the session in a terminal pane."""
