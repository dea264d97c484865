"""Questions: asking and answering, and what follows from a question's file."""
