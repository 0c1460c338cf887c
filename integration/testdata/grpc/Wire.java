import io.grpc.MethodDescriptor;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.net.InetSocketAddress;

/** What Front and Back share: addresses, and methods whose messages are the bytes that they are. */
final class Wire {
  private Wire() {}

  static InetSocketAddress address(String text) {
    int colon = text.lastIndexOf(':');
    return new InetSocketAddress(text.substring(0, colon), Integer.parseInt(text.substring(colon + 1)));
  }

  /** A unary method, by its full name without the first slash. */
  static MethodDescriptor<byte[], byte[]> method(String name) {
    return MethodDescriptor.newBuilder(AS_IS, AS_IS).setType(MethodDescriptor.MethodType.UNARY).setFullMethodName(name).build();
  }

  private static final MethodDescriptor.Marshaller<byte[]> AS_IS = new MethodDescriptor.Marshaller<byte[]>() {
    @Override
    public InputStream stream(byte[] message) {
      return new ByteArrayInputStream(message);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (IOException e) {
        throw new UncheckedIOException(e);
      }
    }
  };
}
