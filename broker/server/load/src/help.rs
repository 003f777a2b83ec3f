//! What the program says of itself.

/// What `--help` prints.
pub const HELP: &str = "\
mqtick-load: measure an MQTT broker over TCP, TLS, UDP (broker/spec/mqtt-udp.md) or MQTT-SN

  mqtick-load limit  mqtt[s]://HOST[:PORT] [OPTION]... how much the broker carries, and how surely
  mqtick-load run    FILE [OPTION]...   a scenario (.toml), or a mqttloader.conf, as it is
  mqtick-load pairs  [OPTION]...   1:1 topics: messages a second, processor time a message
  mqtick-load fanout [OPTION]...   one publisher: delay, first-to-last skew, processor time a copy
  mqtick-load idle   [OPTION]...   memory of a connection that does nothing
  mqtick-load floor  [OPTION]...   only serve, by bare system calls, until standard input ends

limit publishes by an open-loop schedule, and finds the shortest interval at which at least 99 % of
the copies come as fast as messages are published: 5 topics, each with 10 publishers and 10
subscribers, 32 octets, QoS 0; latency and skew by a publisher and 5 subscribers beside them.

One thread, one epoll. Delays are by the kernel's receive stamps (SO_TIMESTAMPNS); while messages
are on their way the generator sleeps, so that the broker's sends wake nobody.

All but floor:
  --broker HOST[:PORT]   where the broker listens (127.0.0.1:1883); mqtts://HOST[:PORT]: over TLS
  --broker-pid PID       its process: its processor time and memory are printed, too
  --mqtt 3.1.1|5         which MQTT to speak (3.1.1)
  --username NAME, --password-file FILE   log in
  --ca-file FILE         who signed its certificate, PEM (whom the system believes)
  --certificate-file FILE, --certificate-key-file FILE   show this certificate, PEM
  --prefix TOPIC         what topics begin with, of nobody else (mqtick-load-NUMBER)
  --patience SECONDS     how long an answer or a copy may take (5)
  --json                 print JSON instead of a table
limit:
  --search fast|published  fast: bisection of short trials, repeated, whose spread gives the
                         uncertainty; published: 80 s a trial, doubling and 20 steps, 5 % (fast);
                         half an hour, or as long as --scenario has it
  --trial SECONDS        of the fast search (3)
  --resolution PERCENT   of the fast search (2)
  --repeats N            of the bisection, at least 2 (5)
  --scenario FILE        another scenario; its groups of kind load are varied, on its machines
  --page FILE            write a page (HTML), too
run (a scenario may name several machines, by ssh: it starts `mqtick-load agent` there):
  --csv FILE             write each message and copy as MQTTLoader does
  --repeats N            (1)
pairs and fanout:
  --qos 0|1              (0)
  --size OCTETS          of the payload, at least 8 (64)
  --repeats N            blocks that are measured, after one that is not (5)
  --floor                measure bare system calls, too, block by block in turn with the broker
  --threads N            threads of the floor: as many as the broker has (1)
pairs (a scenario with a window):
  --pairs N              publishers, each with a topic and a subscriber of its own (1)
  --window N             messages of a pair that may be on their way (4096)
  --burst N              messages a write (32)
  --seconds S            a block (2)
  --persistent           the broker keeps the subscribers' sessions, so that a QoS 1 message is
                         durable before it is acknowledged; they are removed at the end
fanout:
  --subscribers N        (100)
  --messages N           a block (200)
  --gap MS               pause between a message's last copy and the next message (1)
  --rate N               messages a second instead, sent when they are due whatever came back;
                         delays count from when each was due
  --burst N              messages at once, instead of one after the copies of another (1)
  --stamps kernel|clock  clock: read after each receive, where the kernel has no stamps (kernel)
  --udp                  over UDP, the floor is one sendmmsg(); MQTT 3.1.1, QoS 0, no --rate
  --sn                   over MQTT-SN, QoS 0; the same floor
  --until-eof            warm up with a message each 20 ms until standard input ends
idle:
  --connections N        (1000)
floor:
  --address IP           where to serve (127.0.0.1)
  --port N               (any; it is printed)
  --udp                  over UDP

Examples:
  mqtick-load limit mqtt://localhost --page limit.html
  mqtick-load limit mqtts://broker.lan --ca-file ca.pem --username u --password-file u.password
  mqtick-load run scenario.toml --broker localhost --json
  mqtick-load run mqttloader.conf --csv out.csv
  mqtick-load pairs --broker-pid $(pidof mosquitto) --floor
  mqtick-load fanout --subscribers 600 --broker-pid $(pidof mosquitto) --floor --json
  mqtick-load fanout --subscribers 10 --rate 1000 --messages 2000
  mqtick-load idle --connections 10000 --broker-pid $(pidof mosquitto)

Exit codes: 0 measured, 1 failed, 2 wrong use, 130 stopped by Ctrl-C (what was measured is printed).
";
