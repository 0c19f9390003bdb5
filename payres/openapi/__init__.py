"""OpenAPI documents: how they are made, and that of the Open Payments endpoints."""
