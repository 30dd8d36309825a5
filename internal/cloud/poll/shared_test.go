package poll_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cloudblock-csi/cloudblock-csi/internal/cloud/poll"
	"github.com/cloudblock-csi/cloudblock-csi/internal/fault"
)

func (c *fakeCloud) shared() *poll.Shared[string, bool] {
	return poll.NewShared(poll.SharedConfig[string, bool]{Source: c.source()})
}

func TestALoneQuestionWaitsNoLongerThanATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = 100 * time.Millisecond
		s := c.shared()
		defer s.Close()
		c.begin("a", 0)
		for range 3 { // and it is never a cache
			began := time.Now()
			if done, err := s.Get(t.Context(), "a"); err != nil || !done || time.Since(began) != 110*time.Millisecond {
				t.Errorf("Get = %v, %v after %s, want true after 110ms", done, err, time.Since(began))
			}
		}
		if c.ones != 3 || c.manys != 0 {
			t.Errorf("%d single reads and %d lists, want 3 and none", c.ones, c.manys)
		}
	})
}

func TestQuestionsOfOneTickShareOneRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = 100 * time.Millisecond
		s := c.shared()
		defer s.Close()
		var group sync.WaitGroup
		for i := range 100 {
			key := fmt.Sprint(i / 2) // two ask for the same
			c.begin(key, 0)
			group.Go(func() {
				if done, err := s.Get(t.Context(), key); err != nil || !done {
					t.Errorf("Get(%s) = %v, %v, want true", key, done, err)
				}
			})
		}
		group.Wait()
		if c.ones != 0 || c.manys != 1 || c.asked != 50 {
			t.Errorf("%d single reads, %d lists for %d keys, want one list for 50", c.ones, c.manys, c.asked)
		}
	})
}

func TestAQuestionDuringAReadGetsTheNextOne(t *testing.T) {
	tests := map[string]struct {
		lag, want time.Duration // of the read, for the answer to a question asked at 50ms
	}{
		"after the one under way":           {100 * time.Millisecond, 170 * time.Millisecond},
		"or beside it, if it takes forever": {10 * time.Second, 10500 * time.Millisecond},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCloud()
				c.lag = tc.lag
				s := c.shared()
				defer s.Close()
				c.begin("a", 60*time.Millisecond)
				var group sync.WaitGroup
				group.Go(func() {
					if done, err := s.Get(t.Context(), "a"); err != nil || done {
						t.Errorf("the first Get = %v, %v, want false: the state at its beginning", done, err)
					}
				})
				time.Sleep(50 * time.Millisecond)
				for range 10 {
					group.Go(func() {
						began := time.Now()
						done, err := s.Get(t.Context(), "a")
						if took := time.Since(began); err != nil || !done || took != tc.want {
							t.Errorf("Get = %v, %v after %s, want true after %s", done, err, took, tc.want)
						}
					})
				}
				group.Wait()
				if c.ones != 2 {
					t.Errorf("%d reads, want 2", c.ones)
				}
			})
		})
	}
}

func TestErrorsReachEverybodyOfARead(t *testing.T) {
	for _, kind := range []fault.Kind{fault.Unavailable, fault.Denied} {
		synctest.Test(t, func(t *testing.T) {
			c := newCloud()
			c.failing = kind
			s := c.shared()
			defer s.Close()
			var group sync.WaitGroup
			for _, key := range []string{"a", "b", "b"} {
				c.begin(key, 0)
				group.Go(func() {
					if _, err := s.Get(t.Context(), key); !errors.Is(err, kind) {
						t.Errorf("Get(%s) = %v, want %v", key, err, kind)
					}
				})
			}
			group.Wait()
		})
	}
}

func TestAKeyThatTheListLacksIsReadByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		s := c.shared()
		defer s.Close()
		c.begin("listed", 0)
		c.begin("unlisted", 0)
		c.unlisted["unlisted"] = true
		var group sync.WaitGroup
		for key, want := range map[string]fault.Kind{"listed": fault.None, "unlisted": fault.None, "gone": fault.NotFound} {
			group.Go(func() {
				if done, err := s.Get(t.Context(), key); fault.Of(err) != want || err == nil != done {
					t.Errorf("Get(%s) = %v, %v, want the kind %q", key, done, err, want)
				}
			})
		}
		group.Wait()
		if c.manys != 1 || c.ones != 2 {
			t.Errorf("%d lists and %d single reads, want 1 and 2", c.manys, c.ones)
		}
	})
}

func TestAContextThatEndsStopsItsQuestionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = time.Second
		s := c.shared()
		defer s.Close()
		c.begin("a", 0)
		short, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := s.Get(short, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("Get = %v, want the deadline", err)
			}
		})
		group.Go(func() {
			if done, err := s.Get(t.Context(), "a"); err != nil || !done {
				t.Errorf("Get = %v, %v, want true", done, err)
			}
		})
		group.Wait()
		if c.cancelled != 0 {
			t.Error("the read was cancelled although somebody waited for it")
		}
		last, end := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer end()
		_, _ = s.Get(last, "a")
		synctest.Wait()
		if c.cancelled != 1 {
			t.Errorf("%d reads cancelled, want the one that nobody waits for", c.cancelled)
		}
		ended, stop := context.WithTimeout(t.Context(), time.Millisecond) // before the read begins
		defer stop()
		_, _ = s.Get(ended, "a")
		time.Sleep(time.Second)
		if c.ones != 2 {
			t.Errorf("%d reads, want 2: nobody waited for a third", c.ones)
		}
	})
}

func TestCloseEndsEveryQuestion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCloud()
		c.lag = time.Hour
		s := c.shared()
		var group sync.WaitGroup
		for i := range 2 {
			group.Go(func() {
				time.Sleep(time.Duration(i) * time.Second) // one is being read, one waits
				if _, err := s.Get(t.Context(), "a"); fault.Of(err) != fault.Unavailable {
					t.Errorf("Get = %v, want unavailable", err)
				}
			})
		}
		time.Sleep(1100 * time.Millisecond)
		s.Close()
		group.Wait()
		if _, err := s.Get(t.Context(), "a"); fault.Of(err) != fault.Unavailable {
			t.Errorf("Get after Close = %v, want unavailable", err)
		}
	})
}
