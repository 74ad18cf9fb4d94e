# needs: go gcc
set -e
export GOCACHE=$PWD/cache GOPATH=$PWD/gopath GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local GO111MODULE=on CGO_ENABLED=0
mkdir p; cd p; cat >go.mod <<'E'
module p
go 1.18
E
cat >main.go <<'E'
package main
import ("fmt"; "net"; "os"; "os/exec"; "os/signal"; "runtime"; "sort"; "sync"; "syscall"; "time")
func main() {
	var wg sync.WaitGroup; var mu sync.Mutex; n := 0
	for i := 0; i < 1000; i++ {
		wg.Add(1); go func(i int) { defer wg.Done(); time.Sleep(time.Millisecond); mu.Lock(); n += i; mu.Unlock() }(i)
	}
	wg.Wait(); fmt.Println(n)
	c := make(chan int); go func() { for i := 0; i < 10000; i++ { c <- i }; close(c) }()
	s := 0; for v := range c { s += v }; fmt.Println(s)
	out, err := exec.Command("sh", "-c", "echo hi; exit 3").Output(); fmt.Printf("%s%v\n", out, err)
	sig := make(chan os.Signal, 1); signal.Notify(sig, syscall.SIGUSR1)
	syscall.Kill(os.Getpid(), syscall.SIGUSR1); fmt.Println(<-sig)
	select { case <-time.After(20 * time.Millisecond): fmt.Println("after"); case <-sig: }
	l, err := net.Listen("unix", "sock"); if err != nil { panic(err) }
	go func() { c, _ := l.Accept(); c.Write([]byte("srv")); c.Close() }()
	k, _ := net.Dial("unix", "sock"); b := make([]byte, 10); m, _ := k.Read(b); fmt.Println(string(b[:m]))
	runtime.LockOSThread(); var x []int; for i := 0; i < 100000; i++ { x = append(x, i*7919%10007) }
	sort.Ints(x); fmt.Println(x[50000]); runtime.GC()
	defer func() { fmt.Println(recover() != nil) }(); var p *int; fmt.Println(*p)
}
E
cat >main_test.go <<'E'
package main
import "testing"
func TestX(t *testing.T) { if 1+1 != 2 { t.Fatal() } }
E
go build -o prog . && ./prog
