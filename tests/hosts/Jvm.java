// SPDX-License-Identifier: Apache-2.0
// Jvm - a Java program: threads of the Java machine, its collector and its signals around the driver's calls (jvm.c).
public class Jvm {
    static native void load();
    static native void churn(int seed);
    static native void check(int allocations);

    // A null reference caught by the machine's own SIGSEGV handler, and garbage, in between.
    static int provoke(Object nothing) {
        byte[] garbage = new byte[1 << 20];
        try {
            return nothing.hashCode();
        } catch (NullPointerException e) {
            return garbage.length;
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        Thread[] threads = new Thread[4];
        System.load(arguments[0]);
        load();
        for (int i = 0; i < threads.length; i++) {
            final int seed = i + 1;
            threads[i] = new Thread(() -> {
                for (int round = 0; round < 10; round++) {
                    churn(seed + round);
                    provoke(null);
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads)
            thread.join();
        check(4 * 10 * 10 * 64);
        System.out.println("churned");
    }
}
