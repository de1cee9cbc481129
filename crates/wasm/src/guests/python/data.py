# What an image of Python with its packages is taken after: each is imported, and used once, so that what they do only
# the first time is done. Nothing of it stays in the program's names.
def prepare():
    import datetime, io, json, random, re  # noqa: F401
    import numpy
    import pandas
    import scipy
    import scipy.integrate, scipy.interpolate, scipy.linalg, scipy.optimize, scipy.signal, scipy.sparse, scipy.special, scipy.stats

    numbers = numpy.arange(12, dtype=float).reshape(3, 4)
    numpy.linalg.inv(numbers @ numbers.T + numpy.eye(3))
    numpy.linalg.svd(numbers)
    numpy.fft.fft(numbers)
    numpy.random.rand(3), numpy.random.default_rng(1).normal(size=3)
    repr(numbers), str(numpy.mean(numbers, axis=0)), numpy.percentile(numbers, 50)

    frame = pandas.read_csv(io.StringIO("name,day,n\na,2025-01-01,1\nb,2025-01-02,2\na,2025-01-03,4\n"), parse_dates=["day"])
    frame.groupby("name")["n"].agg(["mean", "sum"])
    frame.merge(frame, on="name").sort_values("n_x").pivot_table(index="name", values="n_x")
    frame.set_index("day").resample("D").sum(numeric_only=True)
    repr(frame), frame.to_csv(), frame.to_json(), frame.describe(), frame["name"].str.upper()

    scipy.stats.linregress([1, 2, 3], [1, 2, 4]), scipy.stats.norm.cdf(1.0), scipy.stats.ttest_ind([1, 2, 3], [2, 3, 5])
    scipy.optimize.minimize(lambda x: (x[0] - 1) ** 2, [0.0]), scipy.optimize.brentq(lambda x: x - 1, 0, 3)
    scipy.interpolate.interp1d([0, 1], [0, 1])(0.5), scipy.integrate.quad(lambda x: x, 0, 1)
    scipy.linalg.solve(numpy.eye(2), [1, 2]), scipy.signal.butter(2, 0.5), scipy.special.gamma(5)
    scipy.sparse.csr_matrix(numpy.eye(3)) @ numpy.ones(3)


prepare()
del prepare
__import__("linecache").clearcache()
__import__("gc").collect(), __import__("gc").freeze(), None
