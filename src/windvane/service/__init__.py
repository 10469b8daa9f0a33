"""The service: choices over HTTP."""
