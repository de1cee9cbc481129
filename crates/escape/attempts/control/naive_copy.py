# What a copy does that believes whatever it is told: the library's own unpacking, without its filters.
import tarfile
target = os.environ["ESCAPE_TARGET"]
if os.environ["ESCAPE_ONE_FILE"]:
    with open(os.environ["ESCAPE_REPLY"], "rb") as reply, open(target + "/file", "wb") as file: file.write(reply.read())
    os.chmod(target + "/file", int(os.environ["ESCAPE_ONE_FILE"], 8))
    held("copied")
tarfile.TarFile.extraction_filter = staticmethod(lambda member, path: member)
with tarfile.open(os.environ["ESCAPE_REPLY"]) as archive:
    for member in archive:
        try: archive.extract(member, target)
        except OSError as error: print("%s: %s" % (member.name, refused(error)))
held("unpacked")
