"""Notifications and interrupts."""
