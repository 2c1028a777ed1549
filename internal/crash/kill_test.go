package crash

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var (
	killsFlag  = flag.Int("crash.kills", 10, "how often TestRandomKills kills")
	copiesFlag = flag.Int("crash.copies", 0, "how often the bundled text is counted (0: enough for the kills)")
	seedFlag   = flag.Uint64("crash.seed", 0, "seed of the moments of the kills (0: another one each time)")
)

// killDelayMax is how long after a commit a kill comes at most: one batch.
const killDelayMax = 20 * time.Millisecond

// TestRandomKills kills the word count that we ship, each time at a random moment
// after at least one more commit, and then expects the exact counts.
func TestRandomKills(t *testing.T) {
	kills, copies, seed := *killsFlag, *copiesFlag, *seedFlag
	if testing.Short() {
		kills = min(kills, 3)
	}
	if copies == 0 {
		copies = max(16, 2*kills) // two copies are more than a process counts before it is killed
	}
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%d kills, %d copies, -crash.seed=%d", kills, copies, seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	c := bibles(t, copies)
	p := newPlace(t, "wordcount")
	landed := 0
	for range kills {
		if !killOnce(t, p, c, time.Duration(rnd.Int64N(int64(killDelayMax)))) {
			break
		}
		landed++
	}
	t.Logf("%d of %d kills came before the end, %d of %d words were committed then", landed, kills, p.counted(t, c), totalOf(t, c.all()))
	if 10*landed < 9*kills {
		t.Errorf("only %d of %d kills came before the end: use more -crash.copies than %d", landed, kills, copies)
	}
	wordcount.run(t, 0, p.wordcountArgs(c))
	p.checkAll(t, c)
}

// killOnce starts the word count, awaits that it commits, and kills it after a delay.
// It reports whether that was before the end of the input.
func killOnce(t *testing.T, p place, c *corpus, delay time.Duration) bool {
	t.Helper()
	last := p.batch(t)
	v := wordcount.start(t, p.wordcountArgs(c))
	if v.await(t, "a commit", func() bool { return p.batch(t) > last }) {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-v.ended:
		}
	}
	if !v.kill(t) {
		return false
	}
	p.check(t, c)
	return true
}

func (p place) wordcountArgs(c *corpus) []string {
	return []string{
		"--input", c.glob(), "--output", p.output, "--data", p.data,
		"-c", "transaction.schedule.batch.delay.ms=20", "-c", "topology.debug.poison.frames=true",
	}
}
