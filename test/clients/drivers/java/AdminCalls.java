import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.SecurityDisabledException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The admin part of the Java client: each call, and what it must have done, read back. */
final class AdminCalls {
  /** For how long a change may take until every reader sees it. */
  private static final long VISIBLE_MILLIS = 15_000;

  private final String topic;
  private final String group;
  private final ConfigResource resource;
  private final Properties properties = new Properties();

  AdminCalls(Args a) {
    topic = a.get("topic");
    group = topic + "-group";
    resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
    properties.put("bootstrap.servers", a.get("bootstrap"));
  }

  void run() throws Exception {
    try (var admin = Admin.create(properties)) {
      topics(admin);
      configs(admin);
      offsets(admin);
      groups(admin);
      cluster(admin);
      admin.deleteTopics(List.of(topic)).all().get();
      eventually("delete_topic", () -> !admin.listTopics().names().get().contains(topic));
    }
  }

  private void topics(Admin admin) throws Exception {
    var wanted = new NewTopic(topic, Optional.of(3), Optional.empty()).configs(Map.of("retention.ms", "3600000"));
    var created = admin.createTopics(List.of(wanted));
    created.all().get();
    check("create_topics", created.numPartitions(topic).get() == 3
        && created.config(topic).get().get("retention.ms").value().equals("3600000"));
    refused("create_topics_again", TopicExistsException.class, () -> admin.createTopics(List.of(wanted)).all().get());
    eventually("list_topics", () -> admin.listTopics().names().get().contains(topic));
    eventually("describe_topics", () -> partitions(admin) == 3);
    refused("describe_unknown_topic", UnknownTopicOrPartitionException.class,
        () -> admin.describeTopics(List.of(topic + "-none")).allTopicNames().get());
    admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
    eventually("create_partitions", () -> partitions(admin) == 5);
  }

  private int partitions(Admin admin) throws Exception {
    return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size();
  }

  private void configs(Admin admin) throws Exception {
    check("describe_configs", config(admin, "retention.ms").equals("3600000"));
    var ops = List.of(
        new AlterConfigOp(new ConfigEntry("retention.ms", "7200000"), AlterConfigOp.OpType.SET),
        new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND));
    admin.incrementalAlterConfigs(Map.of(resource, ops)).all().get();
    eventually("incremental_alter_configs", () -> config(admin, "retention.ms").equals("7200000")
        && Set.of(config(admin, "cleanup.policy").split(",")).equals(Set.of("delete", "compact")));
    var back = List.of(new AlterConfigOp(new ConfigEntry("cleanup.policy", ""), AlterConfigOp.OpType.DELETE));
    admin.incrementalAlterConfigs(Map.of(resource, back)).all().get();
    eventually("incremental_delete_configs", () -> config(admin, "cleanup.policy").equals("delete"));
    check("list_config_resources", admin.listConfigResources(Set.of(ConfigResource.Type.TOPIC),
        new org.apache.kafka.clients.admin.ListConfigResourcesOptions()).all().get().contains(resource));
  }

  private String config(Admin admin, String key) throws Exception {
    return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(key).value();
  }

  private void offsets(Admin admin) throws Exception {
    var p0 = new TopicPartition(topic, 0);
    try (var producer = new KafkaProducer<>(properties, new StringSerializer(), new StringSerializer())) {
      for (int i = 0; i < 10; i++) producer.send(new ProducerRecord<>(topic, 0, 1000L + i, "k", "v" + i)).get();
    }
    check("list_offsets_latest", offset(admin, p0, OffsetSpec.latest()) == 10);
    check("list_offsets_earliest", offset(admin, p0, OffsetSpec.earliest()) == 0);
    check("list_offsets_timestamp", offset(admin, p0, OffsetSpec.forTimestamp(1004)) == 4);
    check("list_offsets_max_timestamp", offset(admin, p0, OffsetSpec.maxTimestamp()) == 9);
    long low = admin.deleteRecords(Map.of(p0, RecordsToDelete.beforeOffset(4))).lowWatermarks().get(p0).get()
        .lowWatermark();
    check("delete_records", low == 4 && offset(admin, p0, OffsetSpec.earliest()) == 4);
    var producers = admin.describeProducers(List.of(p0)).partitionResult(p0).get().activeProducers();
    check("describe_producers", producers.size() == 1 && producers.get(0).lastSequence() == 9);
  }

  private static long offset(Admin admin, TopicPartition p, OffsetSpec spec) throws Exception {
    return admin.listOffsets(Map.of(p, spec)).partitionResult(p).get().offset();
  }

  private void groups(Admin admin) throws Exception {
    var p0 = new TopicPartition(topic, 0);
    var p = new Properties();
    p.putAll(properties);
    p.put("group.id", group);
    p.put("auto.offset.reset", "earliest");
    p.put("enable.auto.commit", false);
    try (var consumer = new KafkaConsumer<>(p, new StringDeserializer(), new StringDeserializer())) {
      consumer.subscribe(List.of(topic));
      eventually("join_group", () -> consumer.poll(java.time.Duration.ofMillis(200)).count() > 0);
      consumer.commitSync(Map.of(p0, new OffsetAndMetadata(7, "seven")));
      var g = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
      check("describe_groups", g.groupState() == GroupState.STABLE && g.members().size() == 1
          && g.partitionAssignor().equals("range") && g.members().iterator().next().assignment().topicPartitions().size() == 5);
    }
    eventually("list_groups", () -> admin.listGroups().all().get().stream()
        .anyMatch(g -> g.groupId().equals(group) && g.groupState().equals(java.util.Optional.of(GroupState.EMPTY))));
    var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
    check("list_group_offsets", committed.size() == 1 && committed.get(p0).offset() == 7
        && committed.get(p0).metadata().equals("seven"));
    admin.alterConsumerGroupOffsets(group, Map.of(p0, new OffsetAndMetadata(5))).all().get();
    check("alter_group_offsets",
        admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(p0).offset() == 5);
    admin.deleteConsumerGroupOffsets(group, Set.of(p0)).all().get();
    check("delete_group_offsets", admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty());
    // With its last offset Kafka may drop the group itself; a new one gives a group that is surely there.
    admin.alterConsumerGroupOffsets(group, Map.of(p0, new OffsetAndMetadata(5))).all().get();
    admin.deleteConsumerGroups(List.of(group)).all().get();
    refused("delete_groups", GroupIdNotFoundException.class,
        () -> admin.describeConsumerGroups(List.of(group)).all().get());
  }

  private void cluster(Admin admin) throws Exception {
    var c = admin.describeCluster();
    var nodes = c.nodes().get();
    int broker = nodes.iterator().next().id();
    check("describe_cluster", !c.clusterId().get().isEmpty()
        && nodes.stream().map(Node::id).distinct().count() == nodes.size());
    var dirs = admin.describeLogDirs(List.of(broker)).allDescriptions().get().get(broker);
    check("describe_log_dirs", dirs.values().stream()
        .anyMatch(d -> d.replicaInfos().containsKey(new TopicPartition(topic, 0))));
    int voters = admin.describeMetadataQuorum().quorumInfo().get().voters().size();
    check("describe_quorum", 1 <= voters && voters <= nodes.size());
    var p0 = new TopicPartition(topic, 0);
    var elected = admin.electLeaders(ElectionType.PREFERRED, Set.of(p0)).partitions().get();
    check("elect_leaders", elected.get(p0).orElseThrow() instanceof ElectionNotNeededException);
    check("list_partition_reassignments", admin.listPartitionReassignments(Set.of(p0)).reassignments().get().isEmpty());
    check("describe_client_quotas", admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get().isEmpty());
    check("describe_user_scram_credentials", admin.describeUserScramCredentials().all().get().isEmpty());
    refused("describe_acls", SecurityDisabledException.class,
        () -> admin.describeAcls(AclBindingFilter.ANY).values().get());
  }

  private static void done(String call) {
    Events.print(Events.of("admin").put("call", call));
  }

  private static void check(String call, boolean ok) {
    if (!ok) throw new IllegalStateException(call + ": not the answer that there should be");
    done(call);
  }

  /** Checks for a change that readers may see a moment later. */
  private static void eventually(String call, Callable<Boolean> seen) throws Exception {
    long until = System.currentTimeMillis() + VISIBLE_MILLIS;
    Exception last = null;
    while (System.currentTimeMillis() < until) {
      try {
        if (seen.call()) {
          done(call);
          return;
        }
        last = null;
      } catch (ExecutionException e) {
        last = e; // a topic that is not known yet, say
      }
      Thread.sleep(50);
    }
    throw new IllegalStateException(call + ": not seen after " + VISIBLE_MILLIS + " ms", last);
  }

  private static void refused(String call, Class<? extends Exception> why, Callable<?> act) throws Exception {
    try {
      act.call();
    } catch (ExecutionException e) {
      if (why.isInstance(e.getCause())) {
        done(call);
        return;
      }
      throw e;
    }
    throw new IllegalStateException(call + ": went well, and should be refused with " + why.getSimpleName());
  }
}
