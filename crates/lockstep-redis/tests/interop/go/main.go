// Locks with redsync; see ../README.md.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

var locks *redsync.Redsync
var mutex *redsync.Mutex

func main() {
	client := redis.NewClient(&redis.Options{Addr: net.JoinHostPort(os.Args[1], os.Args[2])})
	locks = redsync.New(goredis.NewPool(client))
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		fmt.Println(obey(strings.Fields(orders.Text())))
	}
}

func obey(words []string) string {
	switch words[0] {
	case "try", "wait":
		tries := 1
		if words[0] == "wait" {
			tries = 1_000_000
		}
		mutex = locks.NewMutex(words[1], redsync.WithExpiry(milliseconds(words[2])),
			redsync.WithTries(tries), redsync.WithRetryDelay(50*time.Millisecond))
		return outcome(mutex.Lock(), "held", "refused")
	case "extend":
		redsync.WithExpiry(milliseconds(words[1])).Apply(mutex)
		done, err := mutex.Extend()
		return outcome(orMissing(done, err), "extended", "not held")
	case "release":
		done, err := mutex.Unlock()
		return outcome(orMissing(done, err), "released", "not held")
	}
	panic(words[0])
}

func outcome(err error, yes, no string) string {
	var taken *redsync.ErrTaken
	switch {
	case err == nil:
		return yes
	case errors.As(err, &taken), errors.Is(err, redsync.ErrFailed), errors.Is(err, redsync.ErrExtendFailed):
		return no
	}
	panic(err)
}

func orMissing(done bool, err error) error {
	if err == nil && !done {
		return redsync.ErrFailed
	}
	return err
}

func milliseconds(text string) time.Duration {
	number, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return time.Duration(number) * time.Millisecond
}
