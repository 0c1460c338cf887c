// A front in JavaScript: what integration/grpcpeer/front.go is in Go.
//
// Makes of each HTTP request a gRPC call to the host that it names, of the method
// that is its path, with its headers x-... as metadata.
//
//     node front.js 127.0.0.1:8080
'use strict';

const http = require('node:http');
const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');
xds.register();

const timeout = 10_000; // ms that a call may take
const statuses = {[grpc.status.UNAVAILABLE]: 503, [grpc.status.DEADLINE_EXCEEDED]: 504};
const asIs = (bytes) => bytes;

const clients = new Map(); // by host

function clientOf(host) {
  if (!clients.has(host)) {
    clients.set(host, new grpc.Client('xds:///' + host, new xds.XdsChannelCredentials(grpc.credentials.createInsecure())));
  }
  return clients.get(host);
}

function metadataOf(headers) {
  const out = new grpc.Metadata();
  for (const [name, value] of Object.entries(headers)) {
    if (name.startsWith('x-')) out.set(name, value);
  }
  return out;
}

const server = http.createServer((request, response) => {
  const done = (error, body) => {
    if (error) {
      response.writeHead(statuses[error.code] ?? 500, {'Content-Type': 'text/plain'});
      response.end(`${grpc.status[error.code]}: ${error.details}`);
    } else {
      response.writeHead(200, {'Content-Type': 'application/json'});
      response.end(body);
    }
  };
  clientOf(request.headers.host).makeUnaryRequest(
    request.url, asIs, asIs, Buffer.alloc(0), metadataOf(request.headers),
    {deadline: Date.now() + timeout}, done);
});

const [host, port] = process.argv[2].split(':');
server.listen(Number(port), host);
