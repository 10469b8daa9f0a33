"""Choices over HTTP: durable, and at home with the clients of a retired service."""
