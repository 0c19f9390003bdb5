"""What is fast and how we know: `make bench` measures payres against a bare application and against its own growth."""


class CannotMeasure(Exception):
    """A tool is missing, a server did not start or an answer was not the expected one; the text says which."""
