// A server in JavaScript: what back.py is in Python.
//
//     node back.js NAME 127.0.0.1:9001
'use strict';

const grpc = require('@grpc/grpc-js');
const xds = require('@grpc/grpc-js-xds');
xds.register();

const asIs = (bytes) => bytes;
const [name, address] = process.argv.slice(2);

function identityOf(call) {
  const certificate = call.getAuthContext().sslPeerCertificate;
  const uri = /URI:([^,]*)/.exec(certificate?.subjectaltname ?? '');
  return uri ? uri[1] : '';
}

const method = (path) => ({path, requestStream: false, responseStream: false, requestSerialize: asIs, requestDeserialize: asIs, responseSerialize: asIs, responseDeserialize: asIs});

const path = '/shop.Reviews/Get';
const server = new xds.XdsServer();
server.addService({get: method(path)}, {
  get: (call, done) => done(null, Buffer.from(JSON.stringify({Upstream: name, Path: path, Peer: identityOf(call)}))),
});
server.bindAsync(address, new xds.XdsServerCredentials(grpc.ServerCredentials.createInsecure()), (error) => {
  if (error) throw error;
});
