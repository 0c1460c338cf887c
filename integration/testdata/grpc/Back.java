import io.grpc.Grpc;
import io.grpc.HandlerRegistry;
import io.grpc.InsecureServerCredentials;
import io.grpc.Metadata;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerMethodDefinition;
import io.grpc.stub.ServerCalls;
import io.grpc.xds.XdsServerBuilder;
import io.grpc.xds.XdsServerCredentials;
import java.security.cert.CertificateParsingException;
import java.security.cert.X509Certificate;
import java.util.List;
import javax.net.ssl.SSLPeerUnverifiedException;
import javax.net.ssl.SSLSession;

/**
 * A server in Java: what back.py is in Python.
 *
 * <pre>java Back NAME 127.0.0.1:9001</pre>
 */
final class Back extends HandlerRegistry {
  private static final int URI = 6; // the type of such a name in a certificate, RFC 5280 4.2.1.6

  private final String name;

  private Back(String name) {
    this.name = name;
  }

  public static void main(String[] args) throws Exception {
    Server server = XdsServerBuilder.forAddress(Wire.address(args[1]), XdsServerCredentials.create(InsecureServerCredentials.create()))
        .fallbackHandlerRegistry(new Back(args[0]))
        .build();
    server.start();
    server.awaitTermination();
  }

  @Override
  public ServerMethodDefinition<?, ?> lookupMethod(String method, String authority) {
    return ServerMethodDefinition.create(Wire.method(method), new ServerCallHandler<byte[], byte[]>() {
      @Override
      public ServerCall.Listener<byte[]> startCall(ServerCall<byte[], byte[]> call, Metadata headers) {
        byte[] answer = answer(call).getBytes();
        return ServerCalls.<byte[], byte[]>asyncUnaryCall((request, out) -> {
          out.onNext(answer);
          out.onCompleted();
        }).startCall(call, headers);
      }
    });
  }

  private String answer(ServerCall<?, ?> call) {
    return String.format("{\"Upstream\": \"%s\", \"Path\": \"/%s\", \"Peer\": \"%s\"}",
        name, call.getMethodDescriptor().getFullMethodName(), identityOf(call));
  }

  private static String identityOf(ServerCall<?, ?> call) {
    SSLSession session = call.getAttributes().get(Grpc.TRANSPORT_ATTR_SSL_SESSION);
    if (session == null) {
      return "";
    }
    try {
      X509Certificate certificate = (X509Certificate) session.getPeerCertificates()[0];
      for (List<?> san : certificate.getSubjectAlternativeNames()) {
        if (san.get(0).equals(URI)) {
          return (String) san.get(1);
        }
      }
      return "";
    } catch (SSLPeerUnverifiedException | CertificateParsingException e) {
      throw new IllegalStateException(e);
    }
  }
}
