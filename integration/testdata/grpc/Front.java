import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientInterceptors;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.xds.XdsChannelCredentials;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

/**
 * A front in Java: what integration/grpcpeer/front.go is in Go.
 *
 * <p>Makes of each HTTP request a gRPC call to the host that it names, of the method that is its
 * path, with its headers x-... as metadata.
 *
 * <pre>java Front 127.0.0.1:8080</pre>
 */
final class Front {
  private static final int TIMEOUT = 10; // seconds that a call may take
  private static final Map<String, Channel> CHANNELS = new ConcurrentHashMap<>(); // by host

  public static void main(String[] args) throws IOException {
    System.setProperty("sun.net.httpserver.nodelay", "true");
    HttpServer server = HttpServer.create(Wire.address(args[0]), 0);
    server.setExecutor(Executors.newCachedThreadPool());
    server.createContext("/", Front::answer);
    server.start();
  }

  private static void answer(HttpExchange exchange) throws IOException {
    try {
      send(exchange, 200, "application/json", call(exchange));
    } catch (StatusRuntimeException e) {
      send(exchange, statusOf(e), "text/plain", textOf(e).getBytes());
    }
  }

  /** The description says little ("io exception"): the causes say the rest. */
  private static String textOf(StatusRuntimeException e) {
    StringBuilder text = new StringBuilder(e.getMessage());
    for (Throwable cause = e.getCause(); cause != null; cause = cause.getCause()) {
      text.append(": ").append(cause.getMessage());
    }
    return text.toString();
  }

  private static byte[] call(HttpExchange exchange) {
    Metadata metadata = new Metadata();
    exchange.getRequestHeaders().forEach((name, values) -> {
      String key = name.toLowerCase(Locale.ROOT);
      if (key.startsWith("x-")) {
        values.forEach(v -> metadata.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), v));
      }
    });
    Channel channel = CHANNELS.computeIfAbsent(exchange.getRequestHeaders().getFirst("Host"), Front::channelTo);
    MethodDescriptor<byte[], byte[]> method = Wire.method(exchange.getRequestURI().getPath().substring(1));
    CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(TIMEOUT, TimeUnit.SECONDS);
    return ClientCalls.blockingUnaryCall(
        ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(metadata)), method, options, new byte[0]);
  }

  private static Channel channelTo(String host) {
    return Grpc.newChannelBuilder("xds:///" + host, XdsChannelCredentials.create(InsecureChannelCredentials.create())).build();
  }

  private static int statusOf(StatusRuntimeException e) {
    switch (e.getStatus().getCode()) {
      case UNAVAILABLE:
        return 503;
      case DEADLINE_EXCEEDED:
        return 504;
      default:
        return 500;
    }
  }

  private static void send(HttpExchange exchange, int status, String kind, byte[] body) throws IOException {
    exchange.getResponseHeaders().set("Content-Type", kind);
    exchange.sendResponseHeaders(status, body.length);
    try (OutputStream out = exchange.getResponseBody()) {
      out.write(body);
    }
  }
}
