// The program that people write with go-tfdata: main OUT TAR..., two tars at a time, a TFRecord file for each.
package main

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/NVIDIA/go-tfdata/tfdata/pipeline"
)

const (
	workers = 2
	block   = 1 << 20
)

func convert(tar, out string) {
	source, err := os.Open(tar)
	check(err)
	defer source.Close()
	name := strings.TrimSuffix(filepath.Base(tar), ".tar") + ".record"
	sink, err := os.Create(filepath.Join(out, name))
	check(err)
	writer := bufio.NewWriterSize(sink, block)
	reader := bufio.NewReaderSize(source, block)
	check(pipeline.NewPipeline().FromTar(reader).SampleToTFExample().ToTFRecord(writer).Do())
	check(writer.Flush())
	check(sink.Close())
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	tars := make(chan string)
	var running sync.WaitGroup
	for range [workers]int{} {
		running.Add(1)
		go func() {
			defer running.Done()
			for tar := range tars {
				convert(tar, os.Args[1])
			}
		}()
	}
	for _, tar := range os.Args[2:] {
		tars <- tar
	}
	close(tars)
	running.Wait()
}
