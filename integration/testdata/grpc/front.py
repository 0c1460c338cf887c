"""A front in Python: what integration/grpcpeer/front.go is in Go.

Makes of each HTTP request a gRPC call to the host that it names, of the method
that is its path, with its headers x-... as metadata.

    python front.py 127.0.0.1:8080
"""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import grpc
import grpc.experimental

TIMEOUT = 10  # seconds that a call may take
STATUS = {grpc.StatusCode.UNAVAILABLE: 503, grpc.StatusCode.DEADLINE_EXCEEDED: 504}


CREDENTIALS = grpc.xds_channel_credentials(grpc.experimental.insecure_channel_credentials())


class Channels:
    """The channels by host."""

    def __init__(self):
        self._lock = threading.Lock()
        self._channels = {}

    def to(self, host):
        with self._lock:
            if host not in self._channels:
                self._channels[host] = grpc.secure_channel("xds:///" + host, CREDENTIALS)
            return self._channels[host]


CHANNELS = Channels()


class Front(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one write

    def do_GET(self):
        # Without serializers, messages are the bytes that they are.
        call = CHANNELS.to(self.headers["Host"]).unary_unary(self.path)
        metadata = [(k.lower(), v) for k, v in self.headers.items() if k.lower().startswith("x-")]
        try:
            self._answer(200, "application/json", call(b"", metadata=metadata, timeout=TIMEOUT))
        except grpc.RpcError as e:
            text = f"{e.code().name}: {e.details()}"
            self._answer(STATUS.get(e.code(), 500), "text/plain", text.encode())

    def _answer(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def main():
    host, _, port = sys.argv[1].rpartition(":")
    ThreadingHTTPServer((host, int(port)), Front).serve_forever()


main()
