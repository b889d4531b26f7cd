-- wrk: every request a booking of its own. Thread and counter make the external_id unique in a run.
local thread_count = 0
function setup(thread)
   thread:set("thread_number", thread_count)
   thread_count = thread_count + 1
end

function init(args)
   run = args[1] or "run"
   count = 0
   failed = 0
   wrk.method = "POST"
   wrk.headers["Content-Type"] = "application/json"
   wrk.headers["X-Webhook-Secret"] = "demo"
end

local template = '{"hotel_code":"DEMO","status":"request","external_id":"%s","arrival":"2027-02-01",'
   .. '"departure":"2027-02-08","adults":2,"children":[5,8],"first_name":"Eva","last_name":"Muster",'
   .. '"email":"eva%d-%d@example.com","phone":"+39 333 1234567","language":"de",'
   .. '"message":"Zimmer mit Balkon, bitte.","newsletter":true}'

function request()
   count = count + 1
   local id = run .. "-" .. thread_number .. "-" .. count
   return wrk.format(nil, nil, nil, string.format(template, id, thread_number, count % 5000))
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
