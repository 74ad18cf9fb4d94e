# needs: java javac
# Java's HttpServer and HttpClient: many requests at once, large bodies both ways, HTTP/1.1 connections that are kept.
set -e
cat > Web.java <<'JAVA'
import com.sun.net.httpserver.HttpServer;
import java.net.*;
import java.net.http.*;
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;

public class Web {
    static HttpRequest.Builder to(int port, String path) {
        return HttpRequest.newBuilder(URI.create("http://127.0.0.1:" + port + path));
    }
    public static void main(String[] args) throws Exception {
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 0), 0);
        ExecutorService workers = Executors.newFixedThreadPool(8);
        server.setExecutor(workers);
        server.createContext("/double", e -> {
            byte[] body = e.getRequestBody().readAllBytes();
            e.sendResponseHeaders(200, 0);
            try (var out = e.getResponseBody()) { out.write(body); out.write(body); }
        });
        server.createContext("/number", e -> {
            byte[] answer = e.getRequestURI().getQuery().getBytes();
            e.sendResponseHeaders(200, answer.length);
            try (var out = e.getResponseBody()) { out.write(answer); }
        });
        server.createContext("/slow", e -> {
            try { Thread.sleep(5000); } catch (InterruptedException i) {}
            e.close();
        });
        server.start();
        int port = server.getAddress().getPort();
        HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
        var text = HttpResponse.BodyHandlers.ofString();
        var all = IntStream.range(0, 200)
            .mapToObj(n -> client.sendAsync(to(port, "/number?" + n).build(), text).thenApply(HttpResponse::body))
            .collect(Collectors.toList());
        int sum = 0;
        for (var one : all) sum += Integer.parseInt(one.get());
        System.out.println("numbers " + sum);
        byte[] body = new byte[5 << 20];
        new Random(7).nextBytes(body);
        var post = to(port, "/double").POST(HttpRequest.BodyPublishers.ofByteArray(body)).build();
        byte[] got = client.send(post, HttpResponse.BodyHandlers.ofByteArray()).body();
        boolean doubled = got.length == 2 * body.length && Arrays.equals(body, Arrays.copyOf(got, body.length));
        System.out.println("doubled " + doubled);
        System.out.println("missing " + client.send(to(port, "/none").build(), text).statusCode());
        try {
            client.send(to(port, "/slow").timeout(java.time.Duration.ofMillis(300)).build(), text);
            System.out.println("not slow");
        } catch (HttpTimeoutException e) {
            System.out.println("timed out");
        }
        server.stop(0);
        try {
            client.send(to(port, "/number?1").build(), text);
            System.out.println("not stopped");
        } catch (ConnectException e) {
            System.out.println("refused");
        }
        workers.shutdownNow();
        System.exit(0);
    }
}
JAVA
javac Web.java
java -XX:+UseSerialGC -Xmx256m Web
