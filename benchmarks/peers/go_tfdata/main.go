// The program that people write with go-tfdata: main OUT FILE..., two at a time, a TFRecord file for each tar or TFRecord.
package main

import (
	"bufio"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/NVIDIA/go-tfdata/tfdata/core"
	"github.com/NVIDIA/go-tfdata/tfdata/pipeline"
)

const (
	workers = 2
	block   = 1 << 20
)

func convert(path, out string) {
	source, err := os.Open(path)
	check(err)
	defer source.Close()
	base := filepath.Base(path)
	name := strings.TrimSuffix(strings.TrimSuffix(base, ".tar"), ".record") + ".record"
	sink, err := os.Create(filepath.Join(out, name))
	check(err)
	writer := bufio.NewWriterSize(sink, block)
	reader := bufio.NewReaderSize(source, block)
	if strings.HasSuffix(base, ".tar") {
		check(pipeline.NewPipeline().FromTar(reader).SampleToTFExample().ToTFRecord(writer).Do())
	} else {
		copyRecords(reader, writer)
	}
	check(writer.Flush())
	check(sink.Close())
}

func copyRecords(source io.Reader, sink io.Writer) {
	reader, writer := core.NewTFRecordReader(source), core.NewTFRecordWriter(sink)
	for {
		example, err := reader.Read()
		if err == io.EOF {
			return
		}
		check(err)
		_, err = writer.WriteExample(example)
		check(err)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	paths := make(chan string)
	var running sync.WaitGroup
	for range [workers]int{} {
		running.Add(1)
		go func() {
			defer running.Done()
			for path := range paths {
				convert(path, os.Args[1])
			}
		}()
	}
	for _, path := range os.Args[2:] {
		paths <- path
	}
	close(paths)
	running.Wait()
}
