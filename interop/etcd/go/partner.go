// Takes locks with Go's concurrency.Mutex as the lines on standard input say; each gets one line in
// reply. Started with the address of the server.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

type held struct {
	session *concurrency.Session
	mutex   *concurrency.Mutex
}

func main() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{os.Args[1]}})
	must(err)
	locks := map[string]held{}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		fmt.Println(answer(client, locks, words))
	}
}

func answer(client *clientv3.Client, locks map[string]held, words []string) string {
	name := words[1]
	switch words[0] {
	case "lock":
		lock := open(client, name, words[2])
		must(lock.mutex.Lock(context.Background()))
		locks[name] = lock
		return "yes"
	case "try":
		lock := open(client, name, words[2])
		err := lock.mutex.TryLock(context.Background())
		if errors.Is(err, concurrency.ErrLocked) {
			must(lock.session.Close())
			return "no"
		}
		must(err)
		locks[name] = lock
		return "yes"
	case "unlock":
		lock := locks[name]
		delete(locks, name)
		must(lock.mutex.Unlock(context.Background()))
		must(lock.session.Close())
		return "yes"
	case "count":
		count(client, name, words[2], words[3], number(words[4]), number(words[5]))
		return "yes"
	}
	return "what?"
}

func open(client *clientv3.Client, name, lease string) held {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(max(1, number(lease)/1000)))
	must(err)
	return held{session, concurrency.NewMutex(session, name)}
}

// count adds to the number in a file: wrong unless the lock excludes.
func count(client *clientv3.Client, name, lease, file string, threads, times int) {
	var all sync.WaitGroup
	for i := 0; i < threads; i++ {
		all.Add(1)
		go func() {
			defer all.Done()
			lock := open(client, name, lease)
			for n := 0; n < times; n++ {
				must(lock.mutex.Lock(context.Background()))
				text, err := os.ReadFile(file)
				must(err)
				next := number(strings.TrimSpace(string(text))) + 1
				must(os.WriteFile(file, []byte(strconv.Itoa(next)+"\n"), 0o600))
				must(lock.mutex.Unlock(context.Background()))
			}
			must(lock.session.Close())
		}()
	}
	all.Wait()
}

func max(a, b int) int {
	if a > b {
		return a
	}
	return b
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
