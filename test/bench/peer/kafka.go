package peer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/brokerd/brokerd/test/ports"
	"github.com/brokerd/brokerd/test/rig"
)

// Kafka makes so many Apache Kafka brokers of one cluster, each a controller too, with
// their data below dir and a heap of 1 GiB each; settings come on top of Kafka's defaults.
// Nothing is started but the formatting of their directories.
func Kafka(ctx context.Context, dir string, brokers int, settings ...string) (*Server, error) {
	classPath, err := rig.Tool(ctx, "kafka-broker")
	if err != nil {
		return nil, fmt.Errorf("install Kafka: %w", err)
	}
	row, err := ports.InRow(2 * brokers) // of brokers, and of controllers
	if err != nil {
		return nil, err
	}
	s := newServer("kafka", dir, row[:brokers])
	formats, fctx := errgroup.WithContext(ctx)
	for id := range brokers {
		logging, properties := kafkaFile(dir, id, "log4j2.properties"), kafkaFile(dir, id, "server.properties")
		for path, text := range map[string]string{
			properties: kafkaProperties(s.Data(), id, row, settings),
			logging: `status = error
appender.f.type = File
appender.f.name = F
appender.f.fileName = ` + kafkaFile(dir, id, "kafka.log") + `
appender.f.layout.type = PatternLayout
appender.f.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.f.ref = F
`,
		} {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				return nil, errors.Join(fmt.Errorf("configure Kafka: %w", err), formats.Wait())
			}
		}
		java := []string{"java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35",
			"-Djava.awt.headless=true", "-Dlog4j2.configurationFile=file:" + logging, "-cp", classPath}
		format := slices.Concat(java[1:], []string{"kafka.tools.StorageTool", "format", "-t", clusterID, "-c", properties})
		formats.Go(func() error {
			if out, err := exec.CommandContext(fctx, "java", format...).CombinedOutput(); err != nil {
				return fmt.Errorf("format Kafka's directory: %w\n%s", err, out)
			}
			return nil
		})
		s.argvs = append(s.argvs, append(java, "kafka.Kafka", properties))
	}
	return s, formats.Wait()
}

// clusterID is what Kafka's directories are formatted with: any UUID does.
const clusterID = "AAAAAAAAQACAAAAAAAAAAQ"

func kafkaFile(dir string, id int, name string) string {
	return filepath.Join(dir, fmt.Sprintf("%d.%s", id+1, name))
}

// kafkaProperties are the settings of one of the brokers, whose ports come first among
// the ports, and the controllers' after them.
func kafkaProperties(data string, id int, ports []int, settings []string) string {
	brokers := len(ports) / 2
	var voters []string
	for i, port := range ports[brokers:] {
		voters = append(voters, fmt.Sprintf("%d@%s", i+1, loopback(port)))
	}
	replicas, inSync := Replicas(brokers)
	lines := append([]string{
		"process.roles=broker,controller", fmt.Sprintf("node.id=%d", id+1),
		"controller.quorum.voters=" + strings.Join(voters, ","),
		"listeners=PLAINTEXT://" + loopback(ports[id]) + ",CONTROLLER://" + loopback(ports[brokers+id]),
		"controller.listener.names=CONTROLLER", "log.dirs=" + filepath.Join(data, fmt.Sprintf("broker-%d", id+1)),
		fmt.Sprintf("offsets.topic.replication.factor=%d", replicas), fmt.Sprintf("transaction.state.log.replication.factor=%d", replicas),
		fmt.Sprintf("transaction.state.log.min.isr=%d", inSync),
	}, settings...)
	return strings.Join(lines, "\n") + "\n"
}

// Replicas are how many replicas a partition has on so many brokers, and how many of them
// must be in sync where a record is acknowledged with acks=all.
func Replicas(brokers int) (replicas, inSync int) {
	if brokers < 3 {
		return 1, 1
	}
	return 3, 2
}
