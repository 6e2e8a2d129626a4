/* A producer and a consumer on librdkafka, as little around it as possible.
 *
 *   perf produce BROKER TOPIC COUNT SIZE FILE CODEC   FILE has lines of SIZE bytes, sent in turn
 *   perf consume BROKER TOPIC COUNT ENDS              ENDS: where each partition ends, 1,2,3
 *
 * prints how many seconds it took, from the first record to the last one's report. */
#include <librdkafka/rdkafka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long reported, failed;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec + t.tv_nsec / 1e9;
}

static void die(const char *what, const char *why) {
	fprintf(stderr, "%s: %s\n", what, why);
	exit(1);
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
	char err[256];
	if (rd_kafka_conf_set(conf, name, value, err, sizeof err) != RD_KAFKA_CONF_OK)
		die(name, err);
}

static void told(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque) {
	(void)rk, (void)opaque;
	reported++;
	if (m->err)
		failed++;
}

static rd_kafka_t *create(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
	char err[256];
	rd_kafka_t *rk = rd_kafka_new(type, conf, err, sizeof err);
	if (!rk)
		die("create a client", err);
	return rk;
}

static void produce(const char *broker, const char *topic, long count, size_t size, const char *path, const char *codec) {
	FILE *f = fopen(path, "rb");
	char *values = NULL;
	size_t lines = 0;
	if (!f)
		die(path, "cannot be read");
	for (;; lines++) { /* each with its end of line */
		values = realloc(values, (lines + 1) * (size + 1));
		if (fread(values + lines * (size + 1), size + 1, 1, f) != 1)
			break;
	}
	if (!lines)
		die(path, "has no line");
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	set(conf, "bootstrap.servers", broker);
	set(conf, "acks", "all");
	set(conf, "linger.ms", "10");
	set(conf, "batch.size", "1000000");
	set(conf, "batch.num.messages", "100000");
	set(conf, "queue.buffering.max.messages", "500000");
	set(conf, "queue.buffering.max.kbytes", "262144");
	set(conf, "compression.codec", codec);
	rd_kafka_conf_set_dr_msg_cb(conf, told);
	rd_kafka_t *rk = create(RD_KAFKA_PRODUCER, conf);
	rd_kafka_topic_t *t = rd_kafka_topic_new(rk, topic, NULL);
	const struct rd_kafka_metadata *md;
	if (rd_kafka_metadata(rk, 0, t, &md, 30000)) /* what it waits for is no part of the time */
		die(topic, "no metadata");
	rd_kafka_metadata_destroy(md);
	double begun = now();
	for (long n = 0; n < count;) {
		char *v = values + n % lines * (size + 1);
		if (!rd_kafka_produce(t, RD_KAFKA_PARTITION_UA, 0, v, size, NULL, 0, NULL))
			n++;
		else if (rd_kafka_last_error() != RD_KAFKA_RESP_ERR__QUEUE_FULL)
			die("produce", rd_kafka_err2str(rd_kafka_last_error()));
		else
			rd_kafka_poll(rk, 10);
		if (n % 1000 == 0)
			rd_kafka_poll(rk, 0);
	}
	rd_kafka_flush(rk, 120000);
	double took = now() - begun;
	if (reported != count || failed)
		die("produce", "records were not acknowledged");
	printf("%f\n", took);
}

static void consume(const char *broker, const char *topic, long count, char *ends) {
	rd_kafka_conf_t *conf = rd_kafka_conf_new();
	set(conf, "bootstrap.servers", broker);
	set(conf, "group.id", "bench"); /* it must have one, and never joins */
	set(conf, "enable.auto.commit", "false");
	rd_kafka_t *rk = create(RD_KAFKA_CONSUMER, conf);
	rd_kafka_poll_set_consumer(rk);
	rd_kafka_topic_partition_list_t *from = rd_kafka_topic_partition_list_new(8);
	int p = 0;
	for (char *end = strtok(ends, ","); end; end = strtok(NULL, ","), p++)
		if (atol(end) > 0)
			rd_kafka_topic_partition_list_add(from, topic, p)->offset = 0;
	double begun = now();
	if (rd_kafka_assign(rk, from))
		die(topic, "cannot be assigned");
	rd_kafka_queue_t *q = rd_kafka_queue_get_consumer(rk);
	rd_kafka_message_t *got[10000];
	for (long n = 0; n < count;) {
		long want = count - n < 10000 ? count - n : 10000; /* it waits for as many */
		ssize_t k = rd_kafka_consume_batch_queue(q, 30000, got, want);
		if (k <= 0)
			die("consume", "nothing came");
		for (ssize_t i = 0; i < k; i++) {
			if (got[i]->err)
				die("consume", rd_kafka_message_errstr(got[i]));
			rd_kafka_message_destroy(got[i]);
		}
		n += k;
	}
	printf("%f\n", now() - begun);
}

int main(int argc, char **argv) {
	if (argc == 8 && !strcmp(argv[1], "produce"))
		produce(argv[2], argv[3], atol(argv[4]), atol(argv[5]), argv[6], argv[7]);
	else if (argc == 6 && !strcmp(argv[1], "consume"))
		consume(argv[2], argv[3], atol(argv[4]), argv[5]);
	else
		die("perf", "wrong arguments");
	return fflush(stdout);
}
