-- wrk: the requests of a file, one after the other; zero bytes stand between them. The file begins with the number of
-- bytes that an answer has at least: a shorter one has not all that waits.
local threads = {}
function setup(thread)
   thread:set("number", #threads)
   table.insert(threads, thread)
end

function init(args)
   local text = assert(io.open(args[1], "rb")):read("*a")
   requests, short = {}, 0
   for part in text:gmatch("%Z+") do table.insert(requests, part) end
   least = tonumber(table.remove(requests, 1))
   at = number * 7
end

function request()
   at = at + 1
   return requests[at % #requests + 1]
end

function response(status, _, body)
   if status ~= 200 or #body < least then short = short + 1 end
end

function done(summary, latency, _)
   local wrong = 0
   for _, thread in ipairs(threads) do wrong = wrong + thread:get("short") end
   io.write(string.format(
      "RESULT requests=%d duration_us=%d p50_us=%d p99_us=%d max_us=%d status_errors=%d socket_errors=%d\n",
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max, wrong,
      summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout))
end
