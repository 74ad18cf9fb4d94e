# needs: java javac
set -e
cat >M.java <<'E'
import java.io.*; import java.nio.file.*; import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class M { static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
  public static void main(String[] a) throws Exception {
    System.out.println(fib(30));
    ExecutorService e = Executors.newFixedThreadPool(16);
    List<Future<Integer>> f = new ArrayList<>();
    for (int i = 0; i < 200; i++) { int k = i; f.add(e.submit(() -> k * k)); }
    int s = 0; for (var x : f) s += x.get(); System.out.println(s); e.shutdown();
    System.out.println(IntStream.range(0, 1000000).parallel().filter(x -> x % 7 == 0).count());
    Process p = new ProcessBuilder("sh", "-c", "cat; exit 5").redirectErrorStream(true).start();
    p.getOutputStream().write("in\n".getBytes()); p.getOutputStream().close();
    System.out.print(new String(p.getInputStream().readAllBytes())); System.out.println(p.waitFor());
    Path d = Files.createTempDirectory(Paths.get("."), "x");
    for (int i = 0; i < 50; i++) Files.writeString(d.resolve("f" + i), "t" + i); 
    System.out.println(Files.list(d).count());
    try { int[] z = new int[1]; z[2] = 1; } catch (ArrayIndexOutOfBoundsException x) { System.out.println("caught"); }
    try { Object o = null; o.hashCode(); } catch (NullPointerException x) { System.out.println("npe"); }
    try { rec(0); } catch (StackOverflowError x) { System.out.println("so"); }
    byte[][] g = new byte[200][];
    for (int r = 0; r < 5; r++) for (int i = 0; i < 200; i++) g[i] = new byte[100000];
    System.gc(); System.out.println(g[199].length); 
    Thread[] t = new Thread[100];
    for (int i = 0; i < 100; i++) 
      (t[i] = new Thread(() -> { try { Thread.sleep(5); } catch (Exception x) {} })).start();
    for (var x : t) x.join(); System.out.println("joined");
    try (var c = java.nio.channels.FileChannel.open(Paths.get("mm"), StandardOpenOption.CREATE,
      StandardOpenOption.READ, StandardOpenOption.WRITE)) {
      var b = c.map(java.nio.channels.FileChannel.MapMode.READ_WRITE, 0, 10000);
      b.put(5000, (byte) 7); System.out.println(b.get(5000)); }
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("hook")));
    System.exit(3); }
  static int rec(int n) { return rec(n + 1) + 1; } }
E
javac M.java; java -Xmx256m M || echo "exit $?"; java -Xint -XX:+UseSerialGC -Xmx128m M | tail -1 || true
