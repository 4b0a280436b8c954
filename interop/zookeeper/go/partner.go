// Takes locks with Go's zk.Lock as the lines on standard input say; each gets one line in reply. Started
// with the port of the server and the session's length in milliseconds.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

var everybody = zk.WorldACL(zk.PermAll)

func main() {
	session := time.Duration(number(os.Args[2])) * time.Millisecond
	client, _, err := zk.Connect([]string{"127.0.0.1:" + os.Args[1]}, session, zk.WithLogInfo(false))
	must(err)
	locks := map[string]*zk.Lock{}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fmt.Println(answer(client, locks, strings.Fields(lines.Text())))
	}
	client.Close()
}

func answer(client *zk.Conn, locks map[string]*zk.Lock, words []string) string {
	path := words[1]
	switch words[0] {
	case "try":
		// The library can only wait, so whoever does not want to has to look first.
		line, _, err := client.Children(path)
		if err == nil && len(line) > 0 {
			return "no"
		}
		if !errors.Is(err, zk.ErrNoNode) {
			must(err)
		}
		fallthrough
	case "lock":
		lock := zk.NewLock(client, path, everybody)
		must(lock.Lock())
		locks[path] = lock
		return "yes"
	case "unlock":
		lock := locks[path]
		delete(locks, path)
		must(lock.Unlock())
		return "yes"
	case "count":
		count(client, path, words[3], number(words[4]), number(words[5]))
		return "yes"
	}
	return "what?"
}

// count adds to the number in a file: wrong unless the lock excludes.
func count(client *zk.Conn, path, file string, threads, times int) {
	var all sync.WaitGroup
	for i := 0; i < threads; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			lock := zk.NewLock(client, path, everybody)
			for n := 0; n < times; n++ {
				must(lock.Lock())
				text, err := os.ReadFile(file)
				must(err)
				next := number(strings.TrimSpace(string(text))) + 1
				must(os.WriteFile(file, []byte(strconv.Itoa(next)+"\n"), 0o600))
				must(lock.Unlock())
			}
		}()
	}
	all.Wait()
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	must(err)
	return n
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
