import glob
cards = glob.glob("/sys/class/net/*/address")
for card in cards: print(open(card).read())
try: print(open("/proc/net/arp").read())
except OSError: pass
real = [card for card in cards if not card.startswith("/sys/class/net/lo/")]
if CONTROL and not real: nothing_there("this host has no network card")
held("%d cards in sight" % len(cards))
