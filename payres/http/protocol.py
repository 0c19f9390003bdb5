"""The server's HTTP protocol, where documents name it: `uvicorn --http payres.http.protocol:HttpProtocol`."""

from payres.core.http.protocol import HttpProtocol as HttpProtocol
