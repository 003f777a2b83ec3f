//! The help text.

/// What `--help` prints.
pub const HELP: &str = "\
mqtick-load: measure an MQTT broker over TCP, TLS, UDP (broker/spec/mqtt-udp.md) or MQTT-SN

  mqtick-load limit  mqtt[s]://HOST[:PORT] [OPTION]... how much the broker carries, with an interval
  mqtick-load run    FILE [OPTION]...   a scenario (.toml) or a mqttloader.conf
  mqtick-load pairs  [OPTION]...   1:1 topics: messages a second, processor time a message
  mqtick-load fanout [OPTION]...   one publisher: delay, first-to-last skew, processor time a copy
  mqtick-load idle   [OPTION]...   memory of an idle connection
  mqtick-load floor  [OPTION]...   serve by bare system calls until standard input ends

limit publishes by an open-loop schedule, and finds the shortest interval at which at least 99 % of
the copies come as fast as messages are published: 5 topics, each with 10 publishers and 10
subscribers, 32 octets, QoS 0. One more publisher and 5 subscribers measure latency and skew.

One thread, one epoll. Copies have the kernel's receive stamps (SO_TIMESTAMPNS). While messages are
on their way the generator sleeps, so that the broker's sends do not have to wake it.

All but floor:
  --broker HOST[:PORT]   the broker's address (127.0.0.1:1883); mqtts://HOST[:PORT]: over TLS
  --broker-pid PID       its process, whose processor time and memory are printed, too
  --mqtt 3.1.1|5         version of MQTT (3.1.1)
  --username NAME, --password-file FILE   log in
  --ca-file FILE         authorities that sign its certificate, PEM (those of the system)
  --certificate-file FILE, --certificate-key-file FILE   certificate and key of the clients, PEM
  --prefix TOPIC         prefix of topics, which must be unused (mqtick-load-NUMBER)
  --patience SECONDS     how long an answer or a copy may take (5; limit: 1 for a copy)
  --json                 print JSON instead of a table
limit:
  --search fast|published  fast: repeated bisections by short trials, whose spread gives the
                         interval; published: trials of 80 s (or as --scenario says), doubling
                         and 20 steps, to 5 %, half an hour (fast)
  --trial SECONDS        of the fast search (3)
  --resolution PERCENT   of the fast search (2)
  --repeats N            of the bisection, at least 2 (5)
  --scenario FILE        another scenario, whose groups of kind load are varied
run (on the machines that a scenario names it starts `mqtick-load agent` by ssh):
  --csv FILE             write each message and copy of kind latency as MQTTLoader does
  --repeats N            (1)
pairs and fanout:
  --qos 0|1              (0)
  --size OCTETS          of the payload, at least 8 (64)
  --repeats N            measured blocks, after one to warm up (5)
  --floor                measure bare system calls in turn with the broker
  --threads N            threads of the floor: give as many as the broker has (1)
pairs (a scenario with a window):
  --pairs N              publishers, each with a topic and a subscriber of its own (1)
  --window N             messages of a pair that may be on their way (4096)
  --burst N              messages of a write (32)
  --seconds S            length of a block (2)
  --persistent           the broker keeps the subscribers' sessions, so that it stores a QoS 1
                         message before acknowledging it; they are removed at the end
fanout:
  --subscribers N        (100)
  --messages N           messages of a block (200)
  --gap MS               pause between a message's last copy and the next message (1)
  --rate N               messages a second instead, sent when they are due; delays count from
                         when a message was due
  --burst N              messages of a write, after the copies of the last burst (1)
  --stamps kernel|clock  clock: the clock after each receive, if the kernel has no stamps (kernel)
  --udp                  over UDP, MQTT 3.1.1, QoS 0; the floor is one sendmmsg()
  --sn                   over MQTT-SN, QoS 0; the same floor
  --until-eof            warm up with a message every 20 ms until standard input ends
idle:
  --connections N        (1000)
floor:
  --address IP           address to serve at (127.0.0.1)
  --port N               port (any; it is printed)
  --udp                  over UDP

Examples:
  mqtick-load limit mqtt://localhost --json >limit.json    # mqtick-report limit limit.json draws it
  mqtick-load limit mqtts://broker.lan --ca-file ca.pem --username u --password-file u.password
  mqtick-load run scenario.toml --broker localhost --json
  mqtick-load run mqttloader.conf --csv out.csv
  mqtick-load pairs --broker-pid $(pidof mosquitto) --floor
  mqtick-load fanout --subscribers 600 --broker-pid $(pidof mosquitto) --floor --json
  mqtick-load fanout --subscribers 10 --rate 1000 --messages 2000
  mqtick-load idle --connections 10000 --broker-pid $(pidof mosquitto)

Exit codes: 0 measured, 1 failed, 2 wrong use, 130 stopped by Ctrl-C (what was measured is printed).
";
