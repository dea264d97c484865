"""`watch`: the session at a glance, in a terminal pane."""
