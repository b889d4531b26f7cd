-- wrk: every request a booking of its own. Thread and counter make the external_id unique in a run.
local thread_count = 0
function setup(thread)
   thread:set("thread_number", thread_count)
   thread_count = thread_count + 1
end

function init(args)
   run = args[1] or "run"
   count = 0
   start = os.time() % 90000000
   failed = 0
   wrk.method = "POST"
   wrk.headers["Content-Type"] = "application/json"
   wrk.headers["X-Webhook-Secret"] = "demo"
end

local words = 'Zimmer mit Balkon, bitte. Wir kommen mit dem Zug an und freuen uns auf ruhige Tage in den Bergen; '
   .. 'ein Kinderbett und ein Parkplatz fuer spaeter waeren schoen, und beim Abendessen isst eine Person vegetarisch.'
local template = '{"hotel_code":"DEMO","status":"request","external_id":"%s","arrival":"2027-02-01",'
   .. '"departure":"2027-02-08","adults":2,"children":[5,8],"first_name":"Eva","last_name":"Muster",'
   .. '"email":"eva.%s@example.com","phone":"+39 3%d%08d","language":"de",'
   .. '"message":"' .. words .. '","newsletter":true}'

-- Each request is a new guest with an address and a telephone number of their own; about 600 bytes.
function request()
   count = count + 1
   local id = run .. "-" .. thread_number .. "-" .. count
   return wrk.format(nil, nil, nil, string.format(template, id, id, 20 + thread_number, start + count))
end

function response(status)
   if status ~= 200 then failed = failed + 1 end
end

function done(summary, latency, requests)
   io.write(string.format(
      "RESULT requests=%d duration_us=%d p50_us=%d p99_us=%d max_us=%d status_errors=%d socket_errors=%d\n",
      summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), latency.max,
      summary.errors.status, summary.errors.connect + summary.errors.read + summary.errors.write
         + summary.errors.timeout))
end
