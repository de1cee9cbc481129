import sysconfig
places = [sysconfig.get_paths()["stdlib"] + "/__pycache__", "/usr/lib/python3/dist-packages", sysconfig.get_paths()["purelib"]]
if CONTROL: places = [host("home")]
if os.environ["ESCAPE_PHASE"] == "leave":
    for place in places:
        try: open("%s/%s.pyc" % (place, NONCE), "w").close()
        except OSError: pass
    held("tried")
found = [place for place in places if os.path.exists("%s/%s.pyc" % (place, NONCE))]
escaped("there: %s" % found) if found else held("none of %d places" % len(places))
