// MQTT.js as `broker/tests/test_broker_clients.py` wants it: see `broker/tests/clients/README.md`.
const mqtt = require('mqtt')
const readline = require('readline')

const given = Object.fromEntries(
  process.argv.slice(2).map((word) => [word.split('=', 1)[0], word.slice(word.indexOf('=') + 1)])
)
const say = (...words) => process.stdout.write(words.join(' ') + '\n')
const options = {
  clientId: given.id,
  protocolVersion: Number(given.version),
  clean: given.clean === '1',
  reconnectPeriod: 100,
}
if (given.version === '5' && !options.clean) options.properties = { sessionExpiryInterval: 3600 }
if (given.user) Object.assign(options, { username: given.user, password: given.password })
if (given.will) options.will = { topic: given.will, payload: 'gone', qos: 1, retain: false }
if (given.ca) options.ca = require('fs').readFileSync(given.ca)

const client = mqtt.connect(given.url, options)
client.on('connect', (answer) => say('connected', Number(answer.sessionPresent)))
client.on('message', (topic, payload, packet) =>
  say('message', topic, packet.qos, Number(packet.retain), payload.toString('hex'))
)
client.on('error', (error) => {
  if (typeof error.code !== 'number') return // it connects again
  say('refused')
  process.exit()
})

readline.createInterface({ input: process.stdin }).on('line', (line) => {
  const [word, topic, qos, retain, payload] = line.split(' ')
  if (word === 'subscribe') {
    client.subscribe(topic, { qos: Number(qos) }, () =>
      say('subscribed')
    )
  } else if (word === 'publish') {
    const how = { qos: Number(qos), retain: retain === '1' }
    client.publish(topic, Buffer.from(payload, 'hex'), how, () => say('published'))
  } else {
    client.end(() => process.exit())
  }
})
