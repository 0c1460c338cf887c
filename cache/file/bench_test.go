package file_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// fillDir writes files of one object each, a thousand to a folder.
func fillDir(b *testing.B, count int) string {
	b.Helper()
	dir := b.TempDir()
	for i := range count {
		name := filepath.Join(dir, fmt.Sprint("d", i/1000), fmt.Sprintf("x%d.yaml", i))
		if i%1000 == 0 {
			must(b, os.Mkdir(filepath.Dir(name), 0o755))
		}
		write(b, name, entry(b, fmt.Sprint("x", i), 0))
	}
	return dir
}

// BenchmarkStart reads a directory of 10,000 files.
func BenchmarkStart(b *testing.B) {
	dir := fillDir(b, 10_000)
	for b.Loop() {
		s, stop := launch(b, dir)
		s.await("it has synced", s.HasSynced)
		b.StopTimer()
		stop()
		b.StartTimer()
	}
}

// BenchmarkChange changes one of many files, and waits until the cache shows it. That
// includes the settling time.
func BenchmarkChange(b *testing.B) {
	for _, count := range []int{100, 10_000} {
		b.Run(fmt.Sprint("among ", count), func(b *testing.B) {
			s := follow(b, fillDir(b, count))
			b.ReportMetric(float64(quick.Settle.Milliseconds()), "settle-ms")
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				replace(b, s.path("d0/x7.yaml"), entry(b, "x7", i+1))
				s.awaitRound("x7", fmt.Sprint(i+1))
			}
		})
	}
}

// BenchmarkProblems asks for the problems of a directory of which a few files are broken, as each read of
// objects does. Each change of the directory has them listed anew.
func BenchmarkProblems(b *testing.B) {
	for _, count := range []int{100, 10_000} {
		s := follow(b, fillDir(b, count))
		for i := range 10 {
			s.put(fmt.Sprintf("d0/bad%d.yaml", i), "a: [b\n")
		}
		s.await("all problems are known", func() bool { return len(s.Problems()) == 10 })
		for name, ask := range map[string]func() int{
			"asked again":    func() int { return len(s.Problems()) },
			"after a change": s.ListProblems,
		} {
			b.Run(fmt.Sprint(name, "/among ", count), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if n := ask(); n != 10 {
						b.Fatal(n)
					}
				}
			})
		}
	}
}
