"""The ASGI entry, for `uvicorn app:app`: the application with the settings of the environment and payres.toml."""

from payres.application import create_app
from payres.settings import load_settings

app = create_app(load_settings())
