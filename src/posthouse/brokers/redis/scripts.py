"""What the server does in one step: Lua, each with a line of purpose.

A lane is one stream. The ledger of a group and topic is a hash: `member:<id>` is the end of a member's lease in
milliseconds of the server's clock; `owner:<n>`, `epoch:<n>`, `until:<n>`, `started:<n>` and `run:<n>` belong to lane n.
`epoch` changes with the owner and with every seek, so whoever was replaced changes nothing any more. A server that was killed
or replaced may have lost the last of them and give them to others: so whoever asks names itself, its epoch, and the run of
the server that gave it. Entries up to `until` may have been handed out before; `run` is the run that this was true for. `sure:<n>`
is there while nobody owns the lane and nothing of it that is in hand was dealt with. All members read as one consumer, so that what one leaves unacknowledged is the next one's.
"""

from __future__ import annotations

from hashlib import sha1

CONSUMER = "posthouse"
"""As whom all members read."""


class Script:
    """A script, and the name by which the server knows it."""

    def __init__(self, name: str, text: str) -> None:
        self.name = name
        self.text = text
        self.digest = sha1(text.encode(), usedforsecurity=False).hexdigest()


TABLE = """
local function named(flat)
  local found = {}
  for at = 1, #flat, 2 do found[flat[at]] = flat[at + 1] end
  return found
end
local function group_of(lane, group)
  for _, flat in ipairs(redis.call('XINFO', 'GROUPS', lane)) do
    local found = named(flat)
    if found.name == group then return found end
  end
end
local function run_id()
  local said = redis.pcall('INFO', 'server')
  return type(said) == 'string' and said:match('run_id:(%x+)') or ''
end
local function holds(now, ledger, number, member, epoch, run)
  local held = redis.call('HMGET', ledger, 'owner:' .. number, 'epoch:' .. number, 'run:' .. number)
  return held[1] == member and held[2] == epoch and held[3] == run and run == now
end
local function ring(bell) redis.call('XADD', bell, 'MAXLEN', 1, '*', 'rung', 1) end
"""

# Make the lanes that are missing.
MAKE = Script(
    "making a topic",
    """
for _, lane in ipairs(KEYS) do
  if redis.call('EXISTS', lane) == 0 then
    redis.call('XGROUP', 'CREATE', lane, 'maker', 0, 'MKSTREAM')
    redis.call('XGROUP', 'DESTROY', lane, 'maker')
  elseif redis.call('TYPE', lane).ok ~= 'stream' then
    return redis.error_reply('WRONGTYPE the key ' .. lane .. ' is not a stream: rename the topic or the key')
  end
end
""",
)

# Store entries; number and reason of each that was refused. Behind a refusal nothing of its lane is taken.
# ARGV: for each entry its lane, how many fields and values, and these.
ADD = Script(
    "publishing",
    """
local refused, broken = {}, {}
local at, number = 1, 0
while at <= #ARGV do
  local lane, count = tonumber(ARGV[at]), tonumber(ARGV[at + 1])
  if not broken[lane] then
    local reply = redis.pcall('XADD', KEYS[lane], 'NOMKSTREAM', '*', unpack(ARGV, at + 2, at + 1 + count))
    if not reply then
      broken[lane] = 'gone'
    elseif type(reply) == 'table' and reply.err then
      broken[lane] = reply.err
    end
  end
  if broken[lane] then
    refused[#refused + 1] = {number, broken[lane]}
  end
  at = at + 2 + count
  number = number + 1
end
return refused
""",
)

# Give a group its place in lanes that it does not know. KEYS: ledger, lanes. ARGV: group, start. One that was only
# declared starts where its first member says.
BEGIN = Script(
    "joining a group",
    TABLE
    + """
local group, latest, declared = ARGV[1], ARGV[2] == 'latest', ARGV[2] == 'declared'
for number = 0, #KEYS - 2 do
  local lane = KEYS[number + 2]
  if redis.call('EXISTS', lane) == 1 and not group_of(lane, group) then
    local stream = named(redis.call('XINFO', 'STREAM', lane))
    local passed = stream['entries-added'] - stream.length
    local known = redis.call('HEXISTS', KEYS[1], 'epoch:' .. number) == 1
    if latest and not known then
      passed = stream['entries-added']
      redis.call('XGROUP', 'CREATE', lane, group, '$', 'ENTRIESREAD', passed)
    else
      redis.call('XGROUP', 'CREATE', lane, group, 0, 'ENTRIESREAD', passed)
    end
    if known then  -- somebody deleted the lane or the group: what is there may have been handed out
      redis.call('HSET', KEYS[1], 'until:' .. number, stream['last-generated-id'])
    end
    redis.call('HINCRBY', KEYS[1], 'epoch:' .. number, 1)
    redis.call('HSET', KEYS[1], 'started:' .. number, passed, 'run:' .. number, run_id())
    if declared and not known then
      redis.call('HSET', KEYS[1], 'declared:' .. number, 1)
    end
  elseif not declared and redis.call('HDEL', KEYS[1], 'declared:' .. number) == 1 and latest then
    local passed = named(redis.call('XINFO', 'STREAM', lane))['entries-added']
    redis.call('XGROUP', 'SETID', lane, group, '$', 'ENTRIESREAD', passed)
    redis.call('HSET', KEYS[1], 'started:' .. number, passed)
  end
end
""",
)

# Say that a member lives; the ledger, the server's time and run, and the last entry of the bell.
# KEYS: ledger, bell. ARGV: member, lease in ms, longest lease in ms.
RENEW = Script(
    "renewing a lease",
    TABLE
    + """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'member:' .. ARGV[1], string.format('%d', now + ARGV[2]))
local flat = redis.call('HGETALL', KEYS[1])
for at = 1, #flat, 2 do
  if flat[at]:sub(1, 7) == 'member:' and tonumber(flat[at + 1]) < now - ARGV[2] then
    redis.call('HDEL', KEYS[1], flat[at])
  end
end
local rung = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
return {string.format('%d', now), run_id(), rung[1] and rung[1][1] or '0-0', flat}
""",
)

# Become the owner of lanes whose epoch is still as it was seen, in the same run of the server: of each its number, the new
# epoch, `until`, the id of the last entry, and 1 if nothing that is in hand was dealt with. A server that was killed has lost count of what a group has read, and says
# nothing of it: without a number it says that it does not know.
# KEYS: ledger, lanes. ARGV: member, run, group, then for each lane its number and epoch.
TAKE = Script(
    "taking lanes",
    TABLE
    + """
local taken, run = {}, run_id()
if run ~= ARGV[2] then return taken end
for index = 2, #KEYS do
  local number, epoch = ARGV[index * 2], ARGV[index * 2 + 1]
  if redis.call('HGET', KEYS[1], 'epoch:' .. number) == epoch and redis.call('EXISTS', KEYS[index]) == 1 then
    local stream = named(redis.call('XINFO', 'STREAM', KEYS[index]))
    local group = group_of(KEYS[index], ARGV[3])
    local sure = redis.call('HDEL', KEYS[1], 'sure:' .. number)
    if group and group.pending == 0 then sure = 1 end
    if redis.call('HGET', KEYS[1], 'run:' .. number) ~= run then
      sure = 0
      if group then redis.call('XGROUP', 'SETID', KEYS[index], ARGV[3], group['last-delivered-id']) end
      redis.call('HSET', KEYS[1], 'run:' .. number, run, 'until:' .. number, stream['last-generated-id'])
    end
    redis.call('HSET', KEYS[1], 'owner:' .. number, ARGV[1])
    epoch = redis.call('HINCRBY', KEYS[1], 'epoch:' .. number, 1)
    local until_ = redis.call('HGET', KEYS[1], 'until:' .. number) or '0-0'
    taken[#taken + 1] = {tonumber(number), epoch, until_, stream['last-generated-id'], sure}
  end
end
return taken
""",
)

# Give lanes back that are still the member's, and let go of entries that were read and never handed out.
# KEYS: ledger, bell, lanes. ARGV: group, member, 1 if it leaves, then for each lane its number, epoch, run, place to go back
# to, 1 if nothing that it had in hand was dealt with, how many entries were not handed out, and their ids.
GIVE = Script(
    "giving lanes back",
    TABLE
    + """
local now, at = run_id(), 4
for index = 3, #KEYS do
  local number, place, count = ARGV[at], ARGV[at + 3], tonumber(ARGV[at + 5])
  if holds(now, KEYS[1], number, ARGV[2], ARGV[at + 1], ARGV[at + 2]) then
    local found = count > 0 and redis.call('EXISTS', KEYS[index]) == 1 and group_of(KEYS[index], ARGV[1])
    if found then
      for first = at + 6, at + 5 + count, 1000 do
        redis.call('XACK', KEYS[index], ARGV[1], unpack(ARGV, first, math.min(first + 999, at + 5 + count)))
      end
      if found['entries-read'] then
        redis.call('XGROUP', 'SETID', KEYS[index], ARGV[1], place, 'ENTRIESREAD', found['entries-read'] - count)
      else
        redis.call('XGROUP', 'SETID', KEYS[index], ARGV[1], place)
      end
    end
    redis.call('HDEL', KEYS[1], 'owner:' .. number)
    if ARGV[at + 4] == '1' then redis.call('HSET', KEYS[1], 'sure:' .. number, 1) end
    redis.call('HINCRBY', KEYS[1], 'epoch:' .. number, 1)
  end
  at = at + 6 + count
end
if ARGV[3] == '1' then redis.call('HDEL', KEYS[1], 'member:' .. ARGV[2]) end
ring(KEYS[2])
""",
)

# Which lanes are not the member's any more: lost to another, moved, deleted, or of a run of the server that may have known
# more. Their indices. KEYS: ledger and lane in turn. ARGV: member, then of each lane its number, epoch and run.
LOOK = Script(
    "looking at lanes",
    TABLE
    + """
local now, lost, at = run_id(), {}, 2
for index = 1, #KEYS, 2 do
  if not holds(now, KEYS[index], ARGV[at], ARGV[1], ARGV[at + 1], ARGV[at + 2])
    or redis.call('EXISTS', KEYS[index + 1]) == 0 then
    lost[#lost + 1] = (index - 1) / 2
  end
  at = at + 3
end
return lost
""",
)

# Acknowledge in lanes that are still the member's; the indices of those that were lost.
# KEYS: ledger and lane in turn. ARGV: group, member, then for each lane its number, epoch, run, how many ids, and these.
ACK = Script(
    "acknowledging",
    TABLE
    + """
local now, lost, at = run_id(), {}, 3
for index = 1, #KEYS, 2 do
  local count = tonumber(ARGV[at + 3])
  if not holds(now, KEYS[index], ARGV[at], ARGV[2], ARGV[at + 1], ARGV[at + 2]) then
    lost[#lost + 1] = (index - 1) / 2
  else
    for first = at + 4, at + 3 + count, 1000 do
      redis.call('XACK', KEYS[index + 1], ARGV[1], unpack(ARGV, first, math.min(first + 999, at + 3 + count)))
    end
  end
  at = at + 4 + count
end
return lost
""",
)

# Where the lanes end and where a group stands in them: of each lane how many entries were ever added and how many are left,
# the last id, the last one that the group got, how many it has yet to get (-1: not known), how many it has in hand,
# how many were hidden from it, how many of those in hand may have been dealt with, and `until`; nothing for a lane that is gone. KEYS: ledger, lanes. ARGV: group.
STAND = Script(
    "looking at a group",
    TABLE
    + """
local answer, run, time = {}, run_id(), redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local function oldest(lane, group)
  if group.pending > 0 then
    for _, given in ipairs(redis.call('XPENDING', lane, ARGV[1], '-', '+', 100)) do
      if #redis.call('XRANGE', lane, given[1], given[1]) > 0 then return given[1] end
    end
  end
  local next = redis.call('XRANGE', lane, '(' .. group['last-delivered-id'], '+', 'COUNT', 1)
  return #next > 0 and next[1][1] or nil
end
for index = 2, #KEYS do
  if redis.call('EXISTS', KEYS[index]) == 0 then
    answer[#answer + 1] = 0
  else
    local stream = named(redis.call('XINFO', 'STREAM', KEYS[index]))
    local group = group_of(KEYS[index], ARGV[1])
      or {['last-delivered-id'] = '0-0', lag = stream.length, pending = 0,
        ['entries-read'] = stream['entries-added'] - stream.length}
    local hidden = redis.call('HGET', KEYS[1], 'started:' .. index - 2)
    local unsure = redis.call('HEXISTS', KEYS[1], 'sure:' .. index - 2) == 1 and 0 or group.pending
    if (redis.call('HGET', KEYS[1], 'run:' .. index - 2) or run) ~= run then
      group.lag, unsure = -1, group.pending
    end
    local first = oldest(KEYS[index], group)
    answer[#answer + 1] = {
      stream['entries-added'], stream.length, stream['last-generated-id'],
      group['last-delivered-id'], group.lag or -1, group['entries-read'] or -1, group.pending, tonumber(hidden or 0),
      unsure, redis.call('HGET', KEYS[1], 'until:' .. index - 2) or '0-0',
      first and math.max(0, now - tonumber(string.match(first, '^%d+'))) or 0,
    }
  end
end
return answer
""",
)

# Count entries of a lane without sending them: how many of the first thousand between two ids, and the last one's id.
COUNT = Script(
    "counting",
    """
local found = redis.call('XRANGE', KEYS[1], ARGV[1], ARGV[2], 'COUNT', 1000)
return {#found, #found > 0 and found[#found][1] or ''}
""",
)

# Move a group. KEYS: ledger, bell, lanes. ARGV: group, then for each lane its number, the place before the next entry, and
# how many entries are up to there.
SEEK = Script(
    "seeking",
    TABLE
    + f"""
for index = 3, #KEYS do
  local lane, at = KEYS[index], index * 3 - 7
  local number = ARGV[at]
  local stream = named(redis.call('XINFO', 'STREAM', lane))
  redis.call('XGROUP', 'SETID', lane, ARGV[1], ARGV[at + 1], 'ENTRIESREAD', ARGV[at + 2])
  redis.call('XGROUP', 'DELCONSUMER', lane, ARGV[1], '{CONSUMER}')
  redis.call('HINCRBY', KEYS[1], 'epoch:' .. number, 1)
  redis.call('HSET', KEYS[1], 'until:' .. number, stream['last-generated-id'])
  redis.call('HDEL', KEYS[1], 'sure:' .. number)
end
ring(KEYS[2])
""",
)

# Delete entries older than so many ms that every group, whoever's, has acknowledged; how many. KEYS: lanes.
PRUNE = Script(
    "pruning",
    TABLE
    + """
local function older(a, b)  -- by length first: the numbers may be larger than Lua can count
  local ams, aseq = a:match('(%d+)-(%d+)')
  local bms, bseq = b:match('(%d+)-(%d+)')
  if ams ~= bms then return #ams < #bms or (#ams == #bms and ams < bms) end
  return #aseq < #bseq or (#aseq == #bseq and aseq < bseq)
end
local time, gone = redis.call('TIME'), 0
local horizon = string.format('%d-0', math.max(0, time[1] * 1000 + math.floor(time[2] / 1000) + 1 - ARGV[1]))
for _, lane in ipairs(KEYS) do
  if redis.call('EXISTS', lane) == 1 then
    local floor = horizon
    for _, flat in ipairs(redis.call('XINFO', 'GROUPS', lane)) do
      local group = named(flat)
      local first = group['last-delivered-id']
      if group.pending > 0 then first = redis.call('XPENDING', lane, group.name)[2] end
      if older(first, floor) then floor = first end
    end
    gone = gone + redis.call('XTRIM', lane, 'MINID', '=', floor)
  end
end
return gone
""",
)
