# Free rooms: in the form until 2018-10, and in the form from 2020-10 on.

OTA_HotelAvailNotifRQ [-2018]
  like root
  like complete_set
  AvailStatusMessages
    like hotel
    AvailStatusMessage+
      @BookingLimitMessageType {SetLimit}
      @BookingLimit natural
      @BookingThreshold natural
      StatusApplicationControl?
        @Start! date
        @End! date
        @InvTypeCode text8
        @InvCode text

OTA_HotelAvailNotifRS [-2018]
  like push_answer

OTA_HotelInvCountNotifRQ [2020-]
  @Version! any
  like complete_set
  Inventories
    like hotel
    Inventory+
      StatusApplicationControl?
        @Start! date
        @End! date
        @InvTypeCode text8
        @InvCode text [-2022]
        @InvCode text16 [2024-]
        @AllInvCode boolean
      InvCounts?
        InvCount{1,3}
          @CountType! {2|6|9}
          @Count! natural

OTA_HotelInvCountNotifRS [2020-]
  like push_answer

fragment complete_set
  UniqueID?
    @Type! {16|35}
    @ID! any
    @Instance! {CompleteSet}
