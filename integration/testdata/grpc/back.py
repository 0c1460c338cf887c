"""A server in Python: what integration/grpcpeer/server.go is in Go, as far as tests need it.

Answers every call with its name, and the identity that the caller proved.

    python back.py NAME 127.0.0.1:9001
"""

import json
import sys
from concurrent import futures

import grpc


class Everything(grpc.GenericRpcHandler):
    def __init__(self, name):
        self._name = name

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(lambda _, context: self._answer(details.method, context))

    def _answer(self, method, context):
        names = context.auth_context().get("peer_spiffe_id", [b""])
        return json.dumps({"Upstream": self._name, "Path": method, "Peer": names[0].decode()}).encode()


def main():
    name, address = sys.argv[1:]
    server = grpc.server(futures.ThreadPoolExecutor(), handlers=(Everything(name),), xds=True)
    server.add_secure_port(address, grpc.xds_server_credentials(grpc.insecure_server_credentials()))
    server.start()
    server.wait_for_termination()


main()
