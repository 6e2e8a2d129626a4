package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	numberTimeout = 8 * time.Minute // of one process
	numbersAtOnce = 2
	timeoutFactor = 2      // what the suite's own limits are multiplied with
	longestNumber = "0184" // begins first, since it takes minutes
)

// librdkafka runs librdkafka's own tests, each number in a process of its own, since
// one that fails takes its process down. The subtests of a number that it would have
// run after that are not seen.
type librdkafka struct {
	tests string // a regular expression of the tests that run; empty: all
	flags []string
	// pieces are the subtests of one test, each of which runs in a process of its own
	// and counts by itself, so that none hides those behind it.
	pieces librdkafkaPieces
}

type librdkafkaPieces struct {
	test     string
	subtests []string // names of functions
}

// librdkafkaJob is what one process runs.
type librdkafkaJob struct {
	number  string
	subtest string // empty: all of the number's
}

func (l librdkafka) run(ctx context.Context, s *session) (results, error) {
	src, err := s.toolPath("librdkafka")
	if err != nil {
		return nil, err
	}
	tests := filepath.Join(src, "tests")
	env, err := librdkafkaEnvironment(s, src)
	if err != nil {
		return nil, err
	}
	source, err := os.ReadFile(filepath.Join(tests, "test.c"))
	if err != nil {
		return nil, err
	}
	only := l.tests
	if s.only != "" {
		only = s.only
	}
	numbers, err := testNumbers(string(source), only)
	if err != nil {
		return nil, err
	}
	jobs := l.jobs(numbers, s.only)
	todo := make(chan librdkafkaJob, len(jobs))
	for _, j := range jobs {
		todo <- j
	}
	close(todo)
	all := results{}
	var mu sync.Mutex // guards all
	var workers sync.WaitGroup
	for range numbersAtOnce {
		workers.Go(func() {
			for j := range todo {
				one := l.process(ctx, s, tests, env, j)
				mu.Lock()
				for name, r := range one {
					all[name] = r
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return all, nil
}

// librdkafkaEnvironment writes the suite's configuration, and what it wants of an
// unpacked Kafka release: command-line tools, and a way to run a Java class.
func librdkafkaEnvironment(s *session, src string) ([]string, error) {
	kafka, err := s.toolPath("kafka")
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(s.dir, "kafka", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return nil, err
	}
	quiet := "-Dlog4j2.configurationFile=file:" + filepath.Join(filepath.Dir(kafka), "log4j2.properties")
	scripts := map[string]string{"kafka-run-class.sh": fmt.Sprintf("exec java %s -cp \"$CLASSPATH:%s\" \"$@\"", quiet, kafka)}
	for name, class := range map[string]string{
		"topics": "TopicCommand", "configs": "ConfigCommand", "acls": "AclCommand", "consumer-groups": "consumer.group.ConsumerGroupCommand",
	} {
		scripts["kafka-"+name+".sh"] = fmt.Sprintf("exec java -Xmx512m %s -cp '%s' org.apache.kafka.tools.%s \"$@\"", quiet, kafka, class)
	}
	for name, body := range scripts {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			return nil, err
		}
	}
	conf := filepath.Join(s.dir, "test.conf")
	text := fmt.Sprintf("metadata.broker.list=%s\ntest.topic.random=true\ntest.timeout.multiplier=%d\n", s.bootstrap(), timeoutFactor)
	return []string{
		"LD_LIBRARY_PATH=" + filepath.Join(src, "src") + ":" + filepath.Join(src, "src-cpp"),
		"RDKAFKA_TEST_CONF=" + conf, "TEST_KAFKA_VERSION=" + kafkaVersion, "BROKERS=" + s.bootstrap(),
		"KAFKA_PATH=" + filepath.Dir(bin), "TEST_CONSUMER_GROUP_PROTOCOL=classic",
	}, os.WriteFile(conf, []byte(text), 0o644)
}

// testNumbers finds in test.c the numbers of the tests that need a broker.
func testNumbers(source, only string) ([]string, error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	var all []string
	for _, m := range regexp.MustCompile(`_TEST\((\d{4})(_[a-z0-9_]+)([^)]*)`).FindAllStringSubmatch(source, -1) {
		local := strings.Contains(m[3], "TEST_F_LOCAL") || strings.Contains(m[3], "MANUAL")
		if !local && wanted.MatchString(m[1]+m[2]) && !slices.Contains(all, m[1]) {
			all = append(all, m[1])
		}
	}
	slices.Sort(all)
	if i := slices.Index(all, longestNumber); i >= 0 {
		all = slices.Insert(slices.Delete(all, i, i+1), 0, longestNumber)
	}
	return all, nil
}

// jobs are the processes: the numbers, and the pieces that the pattern is of.
func (l librdkafka) jobs(numbers []string, only string) []librdkafkaJob {
	var all []librdkafkaJob
	for _, n := range numbers {
		if !strings.HasPrefix(l.pieces.test, n) {
			all = append(all, librdkafkaJob{number: n})
		}
	}
	for _, sub := range l.pieces.subtests {
		if matched, _ := regexp.MatchString(only, l.pieces.test+"/"+sub); matched {
			all = append(all, librdkafkaJob{l.pieces.test[:4], sub})
		}
	}
	return all
}

// process runs one job. One whose turn did not come has no result.
func (l librdkafka) process(ctx context.Context, s *session, dir string, env []string, j librdkafkaJob) results {
	if ctx.Err() != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, numberTimeout)
	defer cancel()
	path := filepath.Join(s.dir, j.number+j.subtest+".log")
	log, err := os.Create(path)
	if err != nil {
		return nil
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "./test-runner", append([]string{"-L", "-p1"}, l.flags...)...) // -L: no local tests
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	cmd.Env = append(append(os.Environ(), env...), "TESTS="+j.number)
	if j.subtest != "" {
		cmd.Env = append(cmd.Env, "SUBTESTS="+j.subtest+":") // what comes next is the line
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	began := time.Now()
	_ = cmd.Run() // the table in its output says how it ended
	printed, _ := os.ReadFile(path)
	all := readTable(j.number, string(printed), ctx.Err() != nil, time.Since(began))
	if j.subtest == "" {
		return all
	}
	return pieceOf(all, l.pieces.test, j.subtest, string(printed))
}

// pieceOf names the result of a piece. A piece that printed nothing of itself did not
// run, whatever the table says.
func pieceOf(all results, test, subtest, printed string) results {
	if !strings.Contains(printed, "[ "+subtest+":") {
		return nil
	}
	return results{test + "/" + subtest: all[test]}
}

// readTable reads the table that the test runner prints last. A process that hung, or
// went down before the table, is one failed test.
func readTable(number, printed string, hung bool, took time.Duration) results {
	printed = regexp.MustCompile("\x1b\\[[0-9;]*m").ReplaceAllString(printed, "")
	short := map[string]status{"PASSED": passed, "FAILED": failed, "SKIPPED": skipped}
	all := results{}
	for _, m := range regexp.MustCompile(`(?m)^\| (\d{4}_\S+)\s+\|\s+(PASSED|FAILED|SKIPPED)\s+\|\s*([\d.]*)`).FindAllStringSubmatch(printed, -1) {
		if strings.HasSuffix(m[1], "_local") {
			continue
		}
		secs, _ := strconv.ParseFloat(m[3], 64) // none: it was skipped
		all[m[1]] = result{short[m[2]], time.Duration(secs * float64(time.Second))}
	}
	if len(all) > 0 && !hung {
		return all
	}
	name, st := number, failed
	for _, m := range regexp.MustCompile(`=== Running test (`+number+`_\w+) ===`).FindAllStringSubmatch(printed, -1) {
		name = m[1] // the last one took the process down
	}
	if hung {
		st = timedOut
	}
	return results{name: {st, took}}
}
