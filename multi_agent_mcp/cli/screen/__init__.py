"""`watch` in a terminal: an application of Textual, which only this folder knows, in which one looks and steers."""
